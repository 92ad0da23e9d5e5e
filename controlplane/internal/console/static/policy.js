// Policy documents: their fields, and the values that a name inherits from less
// specific policies.
import {fields} from './fields.js';

const byPath = new Map(fields.map((field, i) => [field.path, {...field, order: i}]));

// groupFields are the fields of one consumer group.
export function groupFields(group) {
  const {members, order} = byPath.get('groups');
  return members.map(field => ({...field, order, path: `groups.${group}.${field.path}`}));
}

export const fieldOf = path => byPath.get(path) ?? groupFields(keys(path)[1]).find(field => field.path === path);
export const isGlob = name => name.endsWith('*');

// content is a policy as its author wrote it, without its name and without the
// members that the control plane adds.
export function content(policy) {
  if (!policy) return {};
  const {name, version, updated_at, updated_by, ...doc} = policy;
  return doc;
}

// keys are the keys on the way to a path. The name of a consumer group may have dots.
function keys(path) {
  const [, group, member] = path.match(/^groups\.(.+)\.([^.]+)$/) ?? [];
  return group ? ['groups', group, member] : path.split('.');
}

export function get(doc, path) {
  let at = doc;
  for (const key of keys(path)) {
    if (!isObject(at)) return undefined;
    at = at[key];
  }
  return at;
}

// set returns the document with another value at path; undefined takes the
// field out, and a section that has become empty with it.
export const set = (doc, path, value) => setAt(doc, keys(path), value);

function setAt(doc, [key, ...rest], value) {
  const next = {...doc};
  if (rest.length > 0) value = setAt(isObject(doc[key]) ? doc[key] : {}, rest, value);
  const empty = value === undefined || (rest.length > 0 && Object.keys(value).length === 0);
  if (empty) delete next[key];
  else next[key] = value;
  return next;
}

// flatten lists the fields that a document sets. A field of the schema is a leaf,
// with any value, except groups, which has fields of its own; so is an unknown key
// without an object.
function flatten(doc, prefix = '') {
  const out = new Map();
  for (const [key, value] of Object.entries(doc ?? {})) {
    const path = prefix + key;
    if (isObject(value) && (path === 'groups' || !byPath.has(path))) {
      for (const [inner, v] of flatten(value, path + '.')) out.set(inner, v);
    } else {
      out.set(path, value);
    }
  }
  return out;
}

// changes lists the differences between two documents, in the order of fields.
export function changes(from, to) {
  const before = flatten(from), after = flatten(to);
  const order = path => fieldOf(path)?.order ?? fields.length;
  return [...new Set([...before.keys(), ...after.keys()])]
    .filter(path => !same(before.get(path), after.get(path)))
    .sort((a, b) => order(a) - order(b) || a.localeCompare(b))
    .map(path => ({path, from: before.get(path), to: after.get(path)}));
}

// apply makes the same changes to another document, so that two people's work
// on one policy can be joined.
export const apply = (doc, list) => list.reduce((d, change) => set(d, change.path, change.to), doc);

// JSON text is the way to compare: numbers that JavaScript cannot hold are kept
// as their text, in objects (see api.js).
export const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// matching lists the policies that hold for a name, most specific first,
// without the policy of that very name.
export function matching(name, policies) {
  const literal = isGlob(name) ? name.slice(0, -1) : name;
  return policies
    .filter(p => p.name !== name && isGlob(p.name) && literal.startsWith(p.name.slice(0, -1)))
    .sort((a, b) => b.name.length - a.name.length);
}

// inherited is the value of a field that the policy of that name leaves unset,
// and the policy that the value is from; '' stands for the defaults.
export function inherited(path, name, policies) {
  for (const policy of matching(name, policies)) {
    const value = get(policy, path);
    if (value !== undefined) return {value, from: policy.name};
  }
  return {value: fieldOf(path)?.default, from: ''};
}

// effective is the value of a field for a topic.
export function effective(path, name, policies) {
  const own = get(policies.find(p => p.name === name), path);
  return own === undefined ? inherited(path, name, policies).value : own;
}

// groupNames lists the consumer groups that documents have limits for.
export const groupNames = docs => [...new Set(docs.flatMap(doc => (isObject(doc?.groups) ? Object.keys(doc.groups) : [])))].sort();

// pausedGroups lists the consumer groups that are paused for a topic.
export const pausedGroups = (name, policies) => groupNames([policies.find(p => p.name === name), ...matching(name, policies)])
  .filter(group => effective(`groups.${group}.paused`, name, policies));

const duration = /^\+?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$/;

// parse reads the text typed for a field. Text that it cannot read stays as it is:
// the control plane then says what is allowed.
export function parse(field, text) {
  text = text.trim();
  if (text === '') return undefined;
  if ((field.kind === 'number' || field.kind === 'whole') && text !== '' && !Number.isNaN(Number(text))) {
    const n = Number(text);
    return Number.isInteger(n) && !Number.isSafeInteger(n) && JSON.rawJSON && /^\d+$/.test(text) ? JSON.rawJSON(text) : n;
  }
  if (field.kind === 'yesno') return text === 'true';
  return text;
}

// hint says what the control plane will probably refuse. The control plane decides.
export function hint(field, value) {
  if (value === undefined) return '';
  const n = Number(JSON.rawJSON && JSON.isRawJSON(value) ? value.rawJSON : value);
  const least = field.min ?? 0;
  switch (field.kind) {
    case 'number':
    case 'whole':
      if (typeof value === 'string' || Number.isNaN(n)) return 'must be a number';
      if (field.kind === 'whole' && !Number.isInteger(n)) return 'must be a whole number';
      if (n < least) return `must be at least ${least}`;
      if (n > (field.max ?? Infinity)) return `must be at most ${field.max}`;
      return '';
    case 'duration':
      return value === 0 || value === '0' || duration.test(value) ? '' : 'must be a duration such as 1.5s, 100ms or 2h';
  }
  return '';
}

// shown is a value as it is displayed; text without its quotes.
export const shown = value => (typeof value === 'string' ? value : JSON.stringify(value));

function isObject(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value) && !(JSON.isRawJSON && JSON.isRawJSON(value));
}
