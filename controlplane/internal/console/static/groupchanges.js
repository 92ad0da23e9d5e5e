// What can be done to a consumer group: pause, resume, slow down, seek.
import {Dialog, ErrorNote, html, useId, useState} from './ui.js';
import {api} from './api.js';
import {Confirm, Reason} from './change.js';
import {count, plural} from './format.js';
import {inherited} from './policy.js';

// put changes members of what the topic's own policy says of a group, on top of the version that was seen.
async function put({topic, group, policies}, change, reason) {
  const own = policies.find(p => p.name === topic);
  const limits = {...own?.groups?.[group], ...change, reason};
  for (const key of Object.keys(limits)) if (limits[key] === undefined) delete limits[key];
  return api.put(`/v1/policies/${encodeURIComponent(topic)}/groups/${encodeURIComponent(group)}`, limits,
    own ? {'If-Match': `"${own.version}"`} : {'If-None-Match': '*'});
}

export function PauseGroup({paused, onSaved, onClose, ...of}) {
  const [reason, setReason] = useState('');
  const act = async () => onSaved(await put(of, {paused: !paused}, reason.trim()));
  return html`
    <${Confirm} title=${`${paused ? 'Resume' : 'Pause'} ${of.group}`} verb=${paused ? 'Resume' : 'Pause'} act=${act} ready=${reason.trim() !== ''} onClose=${onClose}>
      <p>${paused ? 'Its members get events again, beginning with the backlog.'
        : 'Its members get no events until it is resumed. What they have can be acked, and publishing goes on.'}</p>
      <${Reason} needed value=${reason} onChange=${setReason} />
    <//>`;
}

const limits = [['rate', 'Events a second, to all members together', 'any'], ['max_inflight', 'Unacked events of all members together', 1]];

export function SlowGroup({onSaved, onClose, ...of}) {
  const own = of.policies.find(p => p.name === of.topic)?.groups?.[of.group] ?? {};
  const id = useId();
  const [values, setValues] = useState({rate: own.rate ?? '', max_inflight: own.max_inflight ?? ''});
  const [reason, setReason] = useState('');
  const number = text => (text === '' ? undefined : Number(text));
  const act = async () => onSaved(await put(of, {rate: number(values.rate), max_inflight: number(values.max_inflight)}, reason.trim()));
  return html`
    <${Confirm} title=${`Slow down ${of.group}`} verb="Save" act=${act} ready=${reason.trim() !== ''} onClose=${onClose}>
      ${limits.map(([field, label, step]) => html`
        <p key=${field}><label for="${id}-${field}">${label}; 0 is no limit</label>
          <input id="${id}-${field}" name=${field} type="number" class="wide" min="0" step=${step} value=${values[field]}
            placeholder=${inherited(`groups.${of.group}.${field}`, of.topic, of.policies).value ?? 0} onInput=${e => setValues({...values, [field]: e.target.value})} /></p>`)}
      <${Reason} needed value=${reason} onChange=${setReason} />
    <//>`;
}

const places = [['earliest', 'The first event that there is'], ['latest', 'Events that come from now on'], ['ts', 'A time'], ['afterId', 'After an event'], ['positions', 'Positions']];

// written is positions as they are typed: 0=1042, 3=17.
const written = positions => Object.entries(positions).map(([p, seq]) => `${p}=${seq}`).join(', ');

// place makes the request's body of what was typed; undefined: not yet.
function place(from, text) {
  if (from === 'ts') return Number.isNaN(Date.parse(text)) ? undefined : {from, ts: Date.parse(text)};
  if (from === 'afterId') return text.trim() ? {from, afterId: text.trim()} : undefined;
  if (from !== 'positions') return {from};
  const pairs = text.split(',').map(pair => pair.trim()).filter(Boolean);
  if (pairs.length === 0 || !pairs.every(pair => /^\d+=\d+$/.test(pair))) return undefined;
  return {from, positions: Object.fromEntries(pairs.map(pair => pair.split('=')).map(([p, seq]) => [p, Number(seq)]))};
}

// Seek moves a group, once it has shown what that replays and skips. positions are where the dialog begins, {} for a choice.
export function Seek({path, group, positions, onDone, onClose}) {
  const id = useId();
  const given = Object.keys(positions).length > 0;
  const [from, setFrom] = useState(given ? 'positions' : 'earliest');
  const [text, setText] = useState(written(positions));
  const [state, setState] = useState({}); // {busy, error, plan}
  const to = place(from, text);
  const edit = (f, t) => {
    setFrom(f);
    setText(t);
    setState({});
  };
  const submit = async e => {
    e.preventDefault();
    setState(s => ({...s, busy: true, error: null}));
    try {
      const plan = state.plan ?? await api.put(path + '/cursor?dry_run=1', to);
      if (!state.plan) return setState({plan});
      await api.put(path + '/cursor', to);
      return onDone(plan);
    } catch (error) {
      return setState({error});
    }
  };
  return html`
    <${Dialog} title=${`Move ${group}`} onClose=${onClose}>
      <form onSubmit=${submit}>
        <p><label for=${id}>It goes on at</label>
          <select id=${id} class="wide" value=${from} onChange=${e => edit(e.target.value, '')}>${places.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}</select></p>
        ${from === 'ts' && html`<p><label for="${id}-at">Time, of this computer's clock</label><input id="${id}-at" class="wide" type="datetime-local" step="1" value=${text} onInput=${e => edit(from, e.target.value)} /></p>`}
        ${from === 'afterId' && html`<p><label for="${id}-at">Id of the event</label><input id="${id}-at" class="wide code" type="text" value=${text} spellcheck=${false} autocomplete="off" onInput=${e => edit(from, e.target.value)} /></p>`}
        ${from === 'positions' && html`<p><label for="${id}-at">Partition=seq to go on after; other partitions stay as they are</label>
          <input id="${id}-at" class="wide code" type="text" value=${text} placeholder="0=1042, 3=17" spellcheck=${false} autocomplete="off" onInput=${e => edit(from, e.target.value)} /></p>`}
        ${state.plan && html`<${Plan} plan=${state.plan} />`}
        <${ErrorNote} error=${state.error} />
        <div class="buttons">
          <button type="submit" class=${state.plan ? 'danger' : 'primary'} disabled=${state.busy || !to} autofocus>${state.busy ? 'Working…' : state.plan ? 'Move the group' : 'Show what that does'}</button>
          <button type="button" onClick=${onClose}>Cancel</button>
        </div>
      </form>
    <//>`;
}

function Plan({plan}) {
  const rows = plan.partitions.filter(p => p.from !== p.to);
  return html`
    <p role="status"><b>${plural(plan.replays, 'event')}</b> would be delivered again, <b>${count(plan.skips)}</b> skipped. Events in flight become stale.</p>
    ${rows.length > 0 && html`
      <div class="scroll"><table><thead><tr><th scope="col" class="number">Partition</th><th scope="col" class="number">From</th><th scope="col" class="number">To</th><th scope="col">Effect</th></tr></thead>
        <tbody>${rows.map(p => html`<tr key=${p.partition}><th scope="row" class="number">${p.partition}</th><td class="number">${p.from}</td><td class="number">${p.to}</td>
          <td>${p.to < p.from ? `replays ${count(p.from - p.to)}` : `skips ${count(p.to - p.from)}`}</td></tr>`)}</tbody></table></div>`}`;
}
