// The rows of what is browsed, by column, and which of them are wanted, in which order.

/** Columns as the ledger packs them: names are numbers that point into a list. */
export class Table {
  constructor(facts) {
    this.kind = facts.kind;
    this.rows = facts.rows;
    this.total = facts.total;
    this.columns = facts.columns;
    this.members = members(facts.columns);
  }

  /** The value of a column in a row. */
  get(column, row) {
    const values = this.columns[column];
    return Array.isArray(values) ? values[row] : values.names[values.at[row]];
  }

  /** Whether a row says the same as that row of another table. */
  sameRow(row, other, place) {
    return Object.keys(this.columns).every((column) =>
      this.get(column, row) === other.get(column, place));
  }

  /** The different values of a column that is made of names. */
  names(column) {
    return this.columns[column].names.filter((name) => name !== "").sort();
  }

  iterations() {
    return [...new Set(this.columns.iteration)].sort((a, b) => a - b);
  }
}

/** Who a contestant is: of several responses of one member, "ada#2", the member. */
export function memberOf(contestant) {
  return contestant.replace(/#\d+$/, "");
}

function members(columns) {
  const found = new Set();
  for (const side of ["left", "right"]) {
    for (const name of columns[side].names) if (name !== "") found.add(memberOf(name));
  }
  return [...found].sort();
}

/** Share of the readable judgments that are not with the largest group; 0 where all agree. */
export function dispute(table, row) {
  const votes = ["for_left", "for_right", "for_tie"].map((column) => table.get(column, row));
  const all = votes[0] + votes[1] + votes[2];
  return all ? 1 - Math.max(...votes) / all : 0;
}

function longest(table, row) {
  return Math.max(table.get("length_left", row) ?? 0, table.get("length_right", row) ?? 0);
}

function gap(table, row) {
  const left = table.get("score_left", row);
  const right = table.get("score_right", row);
  return left === null || right === null ? null : Math.abs(left - right);
}

function lengthGap(table, row) {
  const left = table.get("length_left", row);
  const right = table.get("length_right", row);
  return left === null || right === null ? null : Math.abs(left - right);
}

/** name -> [words, value of a row, direction]. Rows without a value come last. */
export const ORDERS = {
  run: ["the run's order", null, 1],
  newest: ["newest first", (table, row) => row, -1],
  disputed: ["most disputed first", dispute, -1],
  close: ["closest scores first", gap, 1],
  wide: ["widest scores first", gap, -1],
  long: ["longest response first", longest, -1],
  uneven: ["most unequal lengths first", lengthGap, -1],
};

export const JUDGED = {
  unanimous: ["all agree", (t, r) => t.get("for_left", r) + t.get("for_right", r) +
              t.get("for_tie", r) > 0 && dispute(t, r) === 0],
  split: ["disagree", (t, r) => dispute(t, r) > 0],
  unread: ["one is unreadable", (t, r) => t.get("unread", r) > 0],
  flipped: ["one changed with the order", (t, r) => t.get("flipped", r) > 0],
};

/** Positions of the wanted rows, in order. `found` is a set of positions, or null for all. */
export function select(table, wanted, found = null) {
  const tests = testsOf(table, wanted);
  const rows = [];
  for (let row = 0; row < table.rows; row++) {
    if (found !== null && !found.has(row)) continue;
    if (tests.every((test) => test(row))) rows.push(row);
  }
  const [, value, direction] = ORDERS[wanted.order] ?? ORDERS.run;
  if (value === null) return rows;
  const keys = new Map(rows.map((row) => [row, value(table, row)]));
  return rows.sort((a, b) => {
    const [x, y] = [keys.get(a), keys.get(b)];
    if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
    return direction * (x - y) || a - b;
  });
}

function testsOf(table, wanted) {
  const tests = [];
  const { left, right } = table.columns;
  const who = (side) => side.names.map(memberOf);
  const [lefts, rights] = [who(left), who(right)];
  const leftOf = (row) => lefts[left.at[row]];
  const rightOf = (row) => rights[right.at[row]];
  const { member, against } = wanted;
  if (member && against) {
    tests.push((row) => (leftOf(row) === member && rightOf(row) === against) ||
                        (leftOf(row) === against && rightOf(row) === member));
  } else if (member || against) {
    const one = member || against;
    tests.push((row) => leftOf(row) === one || rightOf(row) === one);
  }
  if (wanted.outcome === "won" || wanted.outcome === "lost") {
    const want = wanted.outcome === "won" ? member : against;
    const other = wanted.outcome === "won" ? against : member;
    const winner = (row) => ({ left: leftOf(row), right: rightOf(row) })[table.get("winner", row)];
    const loser = (row) => ({ left: rightOf(row), right: leftOf(row) })[table.get("winner", row)];
    tests.push((row) => (want ? winner(row) === want : winner(row) !== undefined) &&
                        (other ? loser(row) === other : true));
  } else if (wanted.outcome) {
    tests.push((row) => table.get("status", row) === wanted.outcome);
  }
  if (wanted.judged) tests.push((row) => JUDGED[wanted.judged][1](table, row));
  if (wanted.pair) tests.push((row) => table.get("pair", row) === wanted.pair);
  if (wanted.domain) tests.push((row) => table.get("domain", row) === wanted.domain);
  if (wanted.iteration !== "") {
    const iteration = Number(wanted.iteration);
    tests.push((row) => table.get("iteration", row) === iteration);
  }
  if (wanted.least !== "") tests.push((row) => longest(table, row) >= Number(wanted.least));
  if (wanted.most !== "") tests.push((row) => longest(table, row) <= Number(wanted.most));
  return tests;
}
