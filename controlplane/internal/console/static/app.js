// The console: signing in, the frame around the pages, and navigation.
import {html, render, useEffect, useId, useRef, useState} from './ui.js';
import {api, ServerError, session, whenUnauthorized} from './api.js';
import {useLive, useTroubles} from './live.js';
import {clock, plural} from './format.js';
import {address, match, useAddress} from './router.js';
import {Audit} from './audit.js';
import {AllDeadLetters, DeadLetters} from './deadletters.js';
import {Event} from './event.js';
import {Events} from './events.js';
import {Fleet} from './fleet.js';
import {Group} from './group.js';
import {AllGroups, Groups} from './groups.js';
import {Overview} from './overview.js';
import {Policies, Policy} from './policies.js';
import {Scheduled} from './scheduled.js';
import {Sidecar} from './sidecar.js';
import {Topic} from './topic.js';
import {Topics} from './topics.js';
import {Usage} from './usage.js';

// pages by their paths; those with a title are in the navigation, with the pages below them. The first one is the home page.
const pages = [
  {path: '', title: 'Overview', view: Overview},
  {path: 'topics', title: 'Topics', view: Topics},
  {path: 'topics/:topic', view: Topic},
  {path: 'topics/:topic/groups', view: Groups},
  {path: 'topics/:topic/groups/:group', view: Group},
  {path: 'topics/:topic/dead-letters', view: DeadLetters},
  {path: 'topics/:topic/scheduled', view: Scheduled},
  {path: 'groups', title: 'Groups', view: AllGroups},
  {path: 'dead-letters', title: 'Dead letters', view: AllDeadLetters},
  {path: 'topics/:topic/events', view: Events},
  {path: 'topics/:topic/events/:id', view: Event},
  {path: 'fleet', title: 'Fleet', view: Fleet},
  {path: 'fleet/:node', view: Sidecar},
  {path: 'policies', title: 'Policies', view: Policies},
  {path: 'policies/:name', view: Policy},
  {path: 'usage', title: 'Usage', view: Usage},
  {path: 'audit', title: 'Audit log', view: Audit},
];

const section = page => page.path.split('/')[0];

function App() {
  const [me, setMe] = useState(null);
  const [error, setError] = useState(null);
  const at = useAddress();
  async function ask() {
    // The form for a token stays until there is a good one.
    setError(e => (e?.status === 401 ? e : null));
    try {
      setMe(await api.whoami());
      setError(null);
    } catch (err) {
      setMe(null);
      setError(err);
    }
  }
  useEffect(() => {
    whenUnauthorized(() => {
      setMe(null);
      setError(new ServerError(401, {}));
    });
    ask();
  }, []);
  if (!me) {
    return html`<${Header} />
      <main id="main">${!error ? html`<p class="boot" role="status">Loading the console…</p>`
        : error.status === 401 ? html`<${SignIn} onToken=${ask} refused=${Boolean(session.token)} />`
        : html`<div class="banner" role="alert"><span>The console cannot start: ${error.message}.</span><button type="button" onClick=${ask}>Try again</button></div>`}
      </main>`;
  }
  const {page, params} = match(pages, at.path);
  return html`
    <${Header} page=${page} me=${me} onMe=${ask} />
    <${Troubles} />
    <main id="main"><${page.view} key=${at.path.join('/')} ...${params} query=${at.query} me=${me} /></main>`;
}

function Header({page, me, onMe}) {
  return html`
    <header>
      <a class="skip" href="#main" onClick=${e => { e.preventDefault(); document.querySelector('h1')?.focus(); }}>Skip to the content</a>
      <a class="brand" href=${address([])}><img src="icon.svg" alt="" width="20" height="20" />Sluice</a>
      ${page && html`<nav aria-label="Pages">${pages.filter(p => p.title).map(p => html`
        <a key=${p.path} href=${address([p.path].filter(Boolean))} aria-current=${section(page) === section(p) ? 'page' : undefined}>${p.title}${p.path === '' && html`<${Trouble} />`}</a>`)}</nav>`}
      ${me && html`<${Me} me=${me} onMe=${onMe} />`}
    </header>`;
}

// Trouble counts the incidents, on every page.
function Trouble() {
  const {data} = useLive('/v1/overview', {every: 60_000, list: 'overview'});
  const list = (data?.incidents ?? []).filter(i => i.severity !== 'info');
  const critical = list.some(i => i.severity === 'critical');
  return list.length > 0 && html`<span class="badge ${critical ? 'bad' : 'warn'}" title=${plural(list.length, 'incident')}>${list.length}</span>`;
}

// Me shows the user's name and role. Without tokens the user may type a name for
// the audit log.
function Me({me, onMe}) {
  const id = useId();
  const [user, setUser] = useState(session.user);
  if (me.auth) {
    const leave = () => {
      session.token = '';
      onMe();
    };
    return html`
      <div class="me"><span><b>${me.name}</b> <span class="badge">${me.role}${me.policies ? ` of ${me.policies.join(', ')}` : ''}</span></span>
        <button type="button" class="quiet" onClick=${leave}>Sign out</button></div>`;
  }
  const set = e => {
    // A header's value: nothing but visible ASCII.
    session.user = e.target.value.replace(/[^\x20-\x7e]/g, '').trim();
    setUser(session.user);
  };
  return html`
    <div class="me"><label for=${id} class="muted" title="This control plane has no tokens: the audit log shows this name as not verified.">You are</label>
      <input id=${id} type="text" size="12" maxlength="64" placeholder="anonymous" value=${user} onChange=${set} autocomplete="username" spellcheck=${false} />
      <span class="badge">${me.role}</span></div>`;
}

function SignIn({onToken, refused}) {
  const id = useId();
  const [token, setToken] = useState('');
  const input = useRef();
  useEffect(() => input.current.focus(), []);
  const enter = e => {
    e.preventDefault();
    session.token = token.trim();
    onToken();
  };
  return html`
    <form class="card signin" onSubmit=${enter}>
      <h1 tabindex="-1">Sign in</h1>
      <p class="muted">This control plane needs a token. This tab keeps the token until it is closed.</p>
      <label for=${id}>Token</label>
      <input id=${id} ref=${input} type="password" value=${token} autocomplete="off" aria-describedby="${id}-error" onInput=${e => setToken(e.target.value)} />
      <small id="${id}-error" class="error" role="alert">${refused ? 'This token is not valid.' : ''}</small>
      <div class="buttons"><button type="submit" class="primary" disabled=${!token.trim()}>Sign in</button></div>
    </form>`;
}

// Troubles shows since when the page's data may be out of date.
function Troubles() {
  const list = useTroubles();
  if (list.length === 0) return null;
  const since = Math.min(...list.map(t => t.since));
  return html`
    <div class="banner" role="alert">
      <span>${list[0].error.status ? '' : 'No connection since ' + clock(since) + ': '}${list[0].error.message}. This page shows old data.</span>
      <button type="button" onClick=${() => list.forEach(t => t.again())}>Try again</button>
    </div>`;
}

const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);
