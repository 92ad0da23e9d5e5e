// Numbers and times as people read them.
import {now} from './api.js';

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const fine = new Intl.NumberFormat('en', {maximumFractionDigits: 1});
const short = new Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 1});

// perSecond is short: columns of it must not change their width all the time.
export function perSecond(n) {
  if (!n) return '0';
  if (n < 0.05) return '<0.1';
  if (n < 10) return fine.format(n);
  return n < 100_000 ? whole.format(n) : short.format(n);
}

export const count = n => whole.format(n);
export const plural = (n, one, many = one + 's') => `${whole.format(n)} ${n === 1 ? one : many}`;

export function clock(at) {
  return new Date(at).toLocaleTimeString('en-GB');
}

// full is the local date and time, sortable by eye.
export function full(at) {
  const d = new Date(at);
  const two = n => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${d.toLocaleTimeString('en-GB')}`;
}

export function ago(at) {
  const s = Math.max(0, Math.round((now() - Date.parse(at)) / 1000));
  if (s < 2) return 'now';
  if (s < 120) return `${s} s ago`;
  if (s < 7200) return `${Math.round(s / 60)} min ago`;
  if (s < 172_800) return `${Math.round(s / 3600)} h ago`;
  return `${Math.round(s / 86_400)} days ago`;
}
