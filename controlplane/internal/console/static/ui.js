// Preact with htm's templates, and the few pieces that every page is made of.
import {h, render} from './vendor/preact.mjs';
import {useEffect, useId, useLayoutEffect, useMemo, useRef, useState} from './vendor/hooks.mjs';
import htm from './vendor/htm.mjs';
import {ago, clock, count, full} from './format.js';
import {address, setQuery} from './router.js';
import {CopyAs} from './copy.js';

export const html = htm.bind(h);
export {render, useEffect, useId, useLayoutEffect, useMemo, useRef, useState};

// Page has a heading that gets the focus after a navigation, so that screen
// readers announce the new page. copy has the commands for what the page shows: {path, cli}.
export function Page({title, code, crumbs = [], actions, copy, poll, children}) {
  const heading = useRef();
  useEffect(() => {
    document.title = `${title} · Sluice`;
    // The first page has no focus: its user starts at the top.
    if (document.body.dataset.visited) heading.current.focus();
    document.body.dataset.visited = 'yes';
  }, [title]);
  return html`
    ${crumbs.length > 0 && html`<nav class="crumbs" aria-label="Path">${crumbs.map(([text, href]) => html`<a key=${href} href=${href}>${text}</a>`)}</nav>`}
    <div class="title">
      <h1 tabindex="-1" ref=${heading} class=${code ? 'code' : ''}>${title}</h1>
      ${poll?.stale && html`<span class="badge warn">as of ${clock(poll.at)}</span>`}
      <div class="actions">${actions}${copy && html`<${CopyAs} ...${copy} />`}</div>
    </div>
    <div class=${poll?.stale ? 'stale' : ''}>${children}</div>`;
}

// Tabs are links to the pages of one thing.
const Tabs = ({label, tabs, at}) => html`
  <nav class="tabs" aria-label=${label}>${tabs.map(([text, href]) => html`
    <a key=${text} href=${href} aria-current=${text === at ? 'page' : undefined}>${text}</a>`)}</nav>`;

// TopicTabs are the pages of a topic; store is kept on the way.
export const TopicTabs = ({topic, store, at}) => html`<${Tabs} label="Pages of the topic" at=${at} tabs=${[
  ['Limits', topicLink(topic)], ['Events', address(['topics', topic, 'events'], {store})],
  ['Groups', address(['topics', topic, 'groups'], {store})], ['Dead letters', address(['topics', topic, 'dead-letters'], {store})],
  ['Scheduled', address(['topics', topic, 'scheduled'], {store})],
]} />`;

// Waiting is shown until there is data.
export function Waiting({poll}) {
  return poll.error
    ? html`<div class="empty" role="alert"><p>Nothing to show: ${poll.error.message}.</p>${poll.path && html`<p><code>GET ${poll.path}</code></p>`}</div>`
    : html`<p class="empty" role="status">Loading…</p>`;
}

// Empty says that there is nothing, and what to do next.
export const Empty = ({children}) => html`<div class="empty">${children}</div>`;

export const Time = ({at}) => html`<time datetime=${at} title=${at}>${full(at)}</time>`;
export const Ago = ({at}) => html`<time datetime=${at} title=${full(at)}>${ago(at)}</time>`;

// Dialog is the browser's modal dialog: it keeps the focus, and Escape closes it.
export function Dialog({title, onClose, children}) {
  const dialog = useRef();
  const id = useId();
  useLayoutEffect(() => {
    const element = dialog.current;
    element.showModal();
    return () => element.close(); // gives the focus back
  }, []);
  return html`
    <dialog ref=${dialog} aria-labelledby=${id} onCancel=${e => { e.preventDefault(); onClose(); }}>
      <h2 id=${id}>${title}</h2>
      ${children}
    </dialog>`;
}

// Guarded is a button that says why it is disabled.
export function Guarded({denied, children, ...rest}) {
  return html`<button type="button" ...${rest} disabled=${Boolean(denied) || rest.disabled} title=${denied || rest.title}>${children}</button>`;
}

const settle = 300; // ms after the last key until a filter counts

// Filter is a search box for a part of the address: / moves the focus to it, Escape empties it.
export function Filter({name, query, label, first = true}) {
  const input = useRef();
  const [typed, setTyped] = useState(null); // null: what the address says
  const value = query[name] ?? '';
  useEffect(() => {
    if (typed === null) return undefined;
    const timer = setTimeout(() => {
      setQuery({[name]: typed, cursor: ''});
      setTyped(null);
    }, settle);
    return () => clearTimeout(timer);
  }, [typed]);
  useEffect(() => {
    if (!first) return undefined;
    const key = e => {
      if (e.key !== '/' || e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, textarea, select, dialog')) return;
      e.preventDefault();
      input.current.focus();
    };
    document.addEventListener('keydown', key);
    return () => document.removeEventListener('keydown', key);
  }, []);
  return html`
    <input type="search" ref=${input} class="filter" value=${typed ?? value} aria-label=${label} placeholder=${label + (first ? '  ( / )' : '')}
      autocomplete="off" spellcheck=${false}
      onInput=${e => setTyped(e.target.value.trim())} onKeyDown=${e => e.key === 'Escape' && setTyped('')} />`;
}

// Choice is a select for a part of the address; options are [value, text], and '' is what an address without it means.
export const Choice = ({name, query, label, options}) => html`
  <label class="choice"><span class="muted">${label}</span>
    <select value=${query[name] ?? ''} onChange=${e => setQuery({[name]: e.target.value, cursor: ''}, true)}>
      ${options.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}
    </select></label>`;

// ErrorNote shows the error of the user's last action.
export const ErrorNote = ({error}) => (error ? html`<p class="note bad" role="alert">${error.message}</p>` : null);

// PausedGroups names the consumer groups that a policy pauses.
export const PausedGroups = ({names}) => names.length > 0 && html` <span class="badge warn" title=${names.join(', ')}>
  ${names.length === 1 ? `group ${names[0]} paused` : `${names.length} groups paused`}</span>`;

// Refusals are refused events by error code, the most first.
export function Refusals({of = {}, most = 2}) {
  const codes = Object.entries(of).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
  if (codes.length === 0) return html`<span class="muted">–</span>`;
  const all = codes.map(([code, n]) => `${code} ${count(n)}`).join(', ');
  return html`${codes.slice(0, most).map(([code, n]) => html`<span key=${code}><span class="code">${code}</span> ${count(n)}</span>`)}
    ${codes.length > most && html`<span class="muted" title=${all}>+${codes.length - most}</span>`}`;
}

export const topicLink = name => address(['topics', name]);
export const policyLink = name => address(['policies', name]);

// denied says why the user may not do something, to the policy or the topic of a name if one is given; '': the user may.
export function denied(me, needs, policy, topic) {
  const ranks = ['viewer', 'reader', 'operator', 'editor', 'admin'];
  if (ranks.indexOf(me.role) < ranks.indexOf(needs)) return `Your role is ${me.role}; this needs ${needs}.`;
  const covers = (p, name) => p === name || (p.endsWith('*') && name.startsWith(p.slice(0, -1)));
  if (topic && me.topics && !me.topics.some(p => covers(p, topic))) return `You may work with the topics ${me.topics.join(', ')}.`;
  if (!policy || !me.policies || me.policies.some(p => covers(p, policy))) return '';
  return `You may change the policies ${me.policies.join(', ')}.`;
}
