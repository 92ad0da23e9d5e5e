// The versions of a policy's schema, by the number that events carry.
import {denied, ErrorNote, html, Time, useEffect, useId, useState} from './ui.js';
import {api, parseJSON} from './api.js';
import {eventLink} from './events.js';
import {plural} from './format.js';
import {isGlob} from './policy.js';
import {useStore} from './store.js';

export function Schemas({name, policy, me}) {
  const [{versions, error}, setState] = useState({});
  useEffect(() => {
    const stop = new AbortController();
    api.schemas(name, stop.signal)
      .then(data => setState({versions: data.versions}))
      .catch(error => { if (!stop.signal.aborted) setState(error.status === 404 ? {versions: []} : {error}); });
    return () => stop.abort();
  }, [name, policy?.version]);
  if (versions?.length === 0) return null; // most policies have none
  return html`
    <section class="card" aria-label="Schemas">
      <h2>Schemas</h2>
      ${error ? html`<p class="empty">The schemas cannot be shown: ${error.message}.</p>`
        : !versions ? html`<p class="empty">Loading…</p>`
        : html`<ol class="history">${versions.map(v => html`
          <li key=${v.version}>
            <div class="line">
              <b>${v.version}</b>
              <span class="muted"><${Time} at=${v.at} /> by <b>${v.by}</b></span>
            </div>
            <details><summary>JSON Schema</summary><pre>${JSON.stringify(v.json_schema, null, 2)}</pre></details>
          </li>`)}</ol>`}
      <${Draft} name=${name} me=${me} />
    </section>`;
}

// Draft compares a schema that is not saved with the versions, and with the latest events of a topic.
function Draft({name, me}) {
  const id = useId();
  const {store} = useStore({}, isGlob(name) ? undefined : name);
  const [text, setText] = useState('');
  const [topic, setTopic] = useState(isGlob(name) ? '' : name);
  const [state, setState] = useState({}); // {busy, error, verdict}
  const reads = !denied(me, 'reader', undefined, topic) && store && topic;
  async function check(e) {
    e.preventDefault();
    setState({busy: true});
    try {
      const json_schema = parseJSON(text);
      setState({verdict: await api.post(`/v1/policies/${encodeURIComponent(name)}/schemas/check`, {json_schema, ...(reads && {events: {store, topic}})})});
    } catch (error) {
      setState({error});
    }
  }
  const {busy, error, verdict} = state;
  return html`
    <details><summary>Try a draft</summary>
      <form onSubmit=${check}>
        <p><label for=${id}>JSON Schema</label><textarea id=${id} rows="8" class="wide" spellcheck=${false} value=${text} onInput=${e => { setText(e.target.value); setState({}); }}></textarea></p>
        ${isGlob(name) && html`<p><label for="${id}-topic">Topic whose latest events are looked at; may be left out</label>
          <input id="${id}-topic" type="text" class="wide code" value=${topic} autocomplete="off" spellcheck=${false} onInput=${e => setTopic(e.target.value.trim())} /></p>`}
        <div class="buttons"><button type="submit" disabled=${busy || !text.trim()}>${busy ? 'Comparing…' : 'Compare'}</button></div>
      </form>
      <${ErrorNote} error=${error} />
      ${verdict && html`<div role="status">
        <p><span class="badge ${verdict.compatible ? '' : 'bad'}">${verdict.compatible ? 'compatible' : 'not compatible'}</span> with the versions, as the policy asks.</p>
        ${verdict.reasons.map(r => html`<p key=${r} class="bad">${r}</p>`)}
        ${verdict.events ? html`<p>Of the latest ${plural(verdict.events.checked, 'event')} of <code>${topic}</code> it would refuse <b>${verdict.events.refused}</b>.</p>
          ${verdict.events.examples.map(e => html`<p key=${e.id}><a class="code" href=${eventLink({topic, id: e.id}, store)}>${e.id}</a> ${e.pointer && html`<code>${e.pointer}</code> `}${e.reason}</p>`)}`
          : html`<p class="muted">Stored events were not looked at: ${denied(me, 'reader', undefined, topic) || (store ? 'no topic is given' : 'no sidecar is connected')}.</p>`}
      </div>`}
    </details>`;
}
