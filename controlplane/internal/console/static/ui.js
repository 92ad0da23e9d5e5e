// Preact with htm's templates, and the few pieces that every page is made of.
import {h, render} from './vendor/preact.mjs';
import {useEffect, useId, useLayoutEffect, useMemo, useRef, useState} from './vendor/hooks.mjs';
import htm from './vendor/htm.mjs';
import {ago, clock, full} from './format.js';

export const html = htm.bind(h);
export {render, useEffect, useId, useLayoutEffect, useMemo, useRef, useState};

// Page has a heading that gets the focus after a navigation, so that screen
// readers announce the new page.
export function Page({title, code, actions, poll, children}) {
  const heading = useRef();
  useEffect(() => {
    document.title = `${title} · Sluice`;
    // The first page has no focus: its user starts at the top.
    if (document.body.dataset.visited) heading.current.focus();
    document.body.dataset.visited = 'yes';
  }, [title]);
  return html`
    <div class="title">
      <h1 tabindex="-1" ref=${heading} class=${code ? 'code' : ''}>${title}</h1>
      ${poll?.stale && html`<span class="badge warn">as of ${clock(poll.at)}</span>`}
      <div class="actions">${actions}</div>
    </div>
    <div class=${poll?.stale ? 'stale' : ''}>${children}</div>`;
}

// Waiting is shown until there is data.
export function Waiting({poll}) {
  return poll.error
    ? html`<p class="empty">Nothing to show: ${poll.error.message}.</p>`
    : html`<p class="empty" role="status">Loading…</p>`;
}

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

// Filter is a search box: / moves the focus to it, Escape empties it.
export function Filter({value, onValue, label}) {
  const input = useRef();
  useEffect(() => {
    const key = e => {
      if (e.key !== '/' || e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, textarea, select, dialog')) return;
      e.preventDefault();
      input.current.focus();
    };
    document.addEventListener('keydown', key);
    return () => document.removeEventListener('keydown', key);
  }, []);
  return html`
    <input type="search" ref=${input} class="filter" value=${value} aria-label=${label} placeholder=${label + '  ( / )'}
      autocomplete="off" spellcheck=${false}
      onInput=${e => onValue(e.target.value)} onKeyDown=${e => e.key === 'Escape' && onValue('')} />`;
}

// ErrorNote shows the error of the user's last action.
export const ErrorNote = ({error}) => (error ? html`<p class="note bad" role="alert">${error.message}</p>` : null);

// PausedGroups names the consumer groups that a policy pauses.
export const PausedGroups = ({names}) => names.length > 0 && html` <span class="badge warn" title=${names.join(', ')}>
  ${names.length === 1 ? `group ${names[0]} paused` : `${names.length} groups paused`}</span>`;

export const topicLink = name => '#/topics/' + encodeURIComponent(name);
export const policyLink = name => '#/policies/' + encodeURIComponent(name);

// denied says why the user may not do something, to the policy of a name if one is given; '': the user may.
export function denied(me, needs, policy) {
  const ranks = ['viewer', 'reader', 'operator', 'editor', 'admin'];
  if (ranks.indexOf(me.role) < ranks.indexOf(needs)) return `Your role is ${me.role}; this needs ${needs}.`;
  const covers = p => p === policy || (p.endsWith('*') && policy.startsWith(p.slice(0, -1)));
  if (!policy || !me.policies || me.policies.some(covers)) return '';
  return `You may change the policies ${me.policies.join(', ')}.`;
}
