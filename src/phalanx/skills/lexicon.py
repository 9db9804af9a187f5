"""Hand-written word lists behind the embedded skills. Plain facts; nothing here is downloaded."""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace("\n", " ").split(",") if part.strip())


WORDS = _split("""
    anchor, apple, arrow, autumn, bakery, balcony, bamboo, basket, beacon, blanket, blossom,
    bottle, branch, bridge, bucket, button, cabin, candle, canvas, carpet, castle, cellar, chalk,
    cherry, circle, cloud, coffee, comet, copper, coral, corner, cotton, cradle, crater, curtain,
    danger, desert, diamond, dinner, doctor, dragon, drawer, dream, eagle, early, earth, elbow,
    ember, engine, evening, fabric, falcon, farmer, feather, fence, finger, flame, flower, forest,
    fossil, fountain, frozen, galaxy, garden, garlic, gentle, giant, ginger, glacier, glass,
    golden, grain, granite, guitar, hammer, harbour, harvest, hazel, helmet, hollow, honey,
    horizon, hunter, insect, island, ivory, jacket, jasmine, jigsaw, jungle, kettle, kitchen,
    kitten, ladder, lagoon, lantern, laundry, lemon, letter, library, lizard, magnet, maple,
    marble, meadow, melody, mirror, monkey, morning, mountain, napkin, needle, nephew, number,
    ocean, office, olive, orange, orchard, oyster, painter, palace, paper, parrot, pebble, pencil,
    pepper, picnic, pillow, planet, pocket, potato, puzzle, rabbit, rainbow, ribbon, river,
    rocket, saddle, sailor, salmon, school, shadow, shelter, silver, sister, spider, spring,
    statue, stream, summer, sunset, table, teacher, temple, thunder, ticket, tiger, timber,
    tomato, tunnel, turtle, umbrella, valley, velvet, village, violin, voyage, wagon, walnut,
    window, winter, wisdom, wizard, wonder, yellow, zebra, zipper
""")

KINDS: dict[str, tuple[str, ...]] = {
    "animal": _split("""
        badger, beaver, camel, cheetah, cow, crocodile, deer, dolphin, donkey, elephant, frog,
        giraffe, goat, goose, gorilla, hamster, hedgehog, horse, kangaroo, leopard, lion, moose,
        otter, owl, panda, penguin, pigeon, rabbit, shark, sheep, squirrel, swan, tiger, walrus,
        whale, wolf
    """),
    "food": _split("""
        apricot, bagel, biscuit, burger, cabbage, carrot, cheese, croissant, cucumber, dumpling,
        grapefruit, lasagne, lettuce, mango, muffin, noodle, omelette, onion, pancake, pasta,
        peach, pear, pickle, pizza, pretzel, pudding, radish, raisin, sandwich, sausage, soup,
        strawberry, turnip, waffle, watermelon, yoghurt
    """),
    "tool": _split("""
        anvil, axe, chainsaw, chisel, clamp, crowbar, drill, tape measure, hacksaw, hammer, hoe,
        jackhammer, lathe, mallet, pickaxe, pitchfork, stapler, pliers, rake, ratchet, sander,
        saw, scissors, screwdriver, scythe, shears, shovel, sickle, sledgehammer, spade, spanner,
        trowel, tweezers, soldering iron, wheelbarrow, wrench
    """),
    "vehicle": _split("""
        aeroplane, ambulance, barge, bicycle, boat, bulldozer, bus, canoe, car, carriage,
        trolleybus, ferry, glider, gondola, helicopter, hovercraft, jeep, kayak, limousine, lorry,
        minibus, moped, motorbike, rickshaw, rowing boat, scooter, sledge, submarine, tandem,
        spaceship, taxi, tractor, train, tram, van, yacht
    """),
    "instrument": _split("""
        accordion, bagpipe, banjo, bassoon, bugle, cello, clarinet, kazoo, cymbal, drum, dulcimer,
        fiddle, flute, glockenspiel, gong, guitar, harmonica, harp, harpsichord, lute, lyre,
        mandolin, marimba, oboe, zither, piano, piccolo, saxophone, sitar, tambourine, trombone,
        trumpet, tuba, ukulele, viola, xylophone
    """),
    "clothing": _split("""
        apron, bathrobe, beret, blazer, blouse, bonnet, slipper, cap, vest, cardigan, cloak, coat,
        dress, dungarees, glove, gown, hat, hoodie, jacket, jeans, kilt, kimono, mitten,
        nightdress, poncho, pullover, raincoat, sandal, scarf, shirt, shorts, skirt, sock,
        sweater, trousers, waistcoat
    """),
}

PRAISE = _split("""
    was a joy from start to finish, left me smiling all day, is the best I have ever had, was
    worth every penny, was simply wonderful, made our evening perfect, was even better than I
    hoped, is a real treasure, was excellent in every way, deserves five stars, was a delight to
    use, exceeded all my expectations, was charming and well made, is one I would gladly choose
    again, was outstanding, made me want to come back soon, was superb and good value, is
    something I would recommend to everyone, was flawless, won the whole family over, was
    beautiful and relaxing, impressed all of my friends, was brilliant, is a pleasure to own, was
    fantastic and great fun, has made my life easier, was a lovely surprise, was handled with real
    care, is solid and reliable, was a triumph, was first class, could not have been better, was
    magnificent, is my new favourite, was thoughtful and generous, kept us happy for hours, was a
    wonderful gift, is brilliant value, was warm and welcoming, was perfect for our needs, was a
    great success, works like a dream, was terrific, was splendid, is truly impressive, was
    amazing, was enjoyable throughout, is a masterpiece, was fresh and full of life, was
    everything we wanted, made us laugh and cheer, was marvellous, is remarkably good, was a
    complete success, earned our loud applause, was elegant and clever, was the highlight of our
    week, is well worth a visit, was a pleasure, has been superb since day one
""")

BLAME = _split("""
    was a bore from start to finish, left me angry all day, is the worst I have ever had, was a
    waste of money, was simply terrible, ruined our evening, was even worse than I feared, is
    complete rubbish, was poor in every way, deserves no stars, was a pain to use, failed all my
    expectations, was ugly and badly made, is one I would never choose again, was dreadful, made
    me want to leave at once, was awful and overpriced, is something I would warn everyone about,
    was full of faults, put the whole family off, was dirty and noisy, annoyed all of my friends,
    was horrible, is a burden to own, was tedious and no fun, has made my life harder, was a nasty
    shock, was handled without any care, is flimsy and unreliable, was a disaster, was third rate,
    could not have been worse, was atrocious, is my biggest regret, was rude and careless, kept us
    miserable for hours, was a terrible gift, is awful value, was cold and unfriendly, was useless
    for our needs, was a great failure, breaks all the time, was pathetic, was disgusting, is
    truly disappointing, was appalling, was unpleasant throughout, is a mess, was stale and
    lifeless, was nothing like we wanted, made us groan and leave, was lousy, is remarkably bad,
    was a complete failure, earned our loud complaints, was clumsy and stupid, was the low point
    of our week, is not worth a visit, was a nightmare, has been broken since day one
""")

SUBJECTS = _split("""
    hotel, film, meal, book, concert, phone, jacket, museum, garden tour, dentist, bakery, train
    ride, laptop, kettle, play, cafe, mattress, boat trip, language course, barber, bicycle,
    album, party, board game, new office, delivery, guesthouse, cooking class, headset, picnic
""")
