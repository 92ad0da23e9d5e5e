// The versions of a policy's schema, by the number that events carry.
import {html, Time, useEffect, useState} from './ui.js';
import {api} from './api.js';

export function Schemas({name, policy}) {
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
    </section>`;
}
