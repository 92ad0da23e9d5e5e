// Numbers and times as people read them.
import {now} from './api.js';

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const fine = new Intl.NumberFormat('en', {maximumFractionDigits: 1});
const all = new Intl.NumberFormat('en', {maximumFractionDigits: 20});
const short = new Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 1});

// perSecond is short: columns of it must not change their width all the time.
export function perSecond(n) {
  if (!n) return '0';
  if (n < 0.05) return '<0.1';
  if (n < 10) return fine.format(n);
  return n < 100_000 ? whole.format(n) : short.format(n);
}

// exact is a number of which nothing is left out, such as a limit.
export const exact = n => all.format(n);
export const count = n => whole.format(n);
export const plural = (n, one, many = one + 's') => `${whole.format(n)} ${n === 1 ? one : many}`;

// bytes is a size: 1 KiB is 1,024 bytes.
export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? whole.format(n) : fine.format(n)} ${units[i]}`;
}

export function clock(at) {
  return new Date(at).toLocaleTimeString('en-GB');
}

// full is the local date and time, sortable by eye.
export function full(at) {
  const d = new Date(at);
  const two = n => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${d.toLocaleTimeString('en-GB')}`;
}

// precise is full with milliseconds.
export const precise = at => `${full(at)}.${String(new Date(at).getMilliseconds()).padStart(3, '0')}`;

// duration is a number of seconds in the largest fitting unit.
export function duration(s) {
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} days`;
}

export const secondsSince = at => Math.max(0, (now() - new Date(at)) / 1000);

export function ago(at) {
  const s = secondsSince(at);
  return s < 2 ? 'now' : `${duration(s)} ago`;
}
