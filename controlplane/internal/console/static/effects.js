// What a policy would have refused of the publishes of the last hour.
import {html, topicLink, useEffect, useState} from './ui.js';
import {api} from './api.js';
import {clock, count, plural} from './format.js';

const mostRows = 8;

// Effects shows it for a policy that is not saved. onInvalid gets the error of one that never could be.
export function Effects({name, doc, onInvalid}) {
  const [{found, error}, setState] = useState({});
  useEffect(() => {
    let gone = false;
    api.effects(name, doc).then(data => gone || setState({found: data}), err => {
      if (gone) return;
      if (err.status === 422 && onInvalid) onInvalid(err);
      else setState({error: err});
    });
    return () => { gone = true; };
  }, [name, JSON.stringify(doc)]);
  // Its place has one height, so that the buttons below it do not move away from under a pointer.
  return html`<section class="effects" aria-label="What it would have done">
    ${error ? html`<p class="note warn">What it would do is not known: ${error.message}.</p>`
      : found ? html`<${Found} found=${found} />` : html`<p class="muted" role="status">Looking at the last hour…</p>`}
  </section>`;
}

function Found({found}) {
  const {topics, since, sidecars, complete, more = 0} = found;
  const changed = topics.filter(t => t.refused_after === null || t.refused_before !== t.refused_after);
  const others = topics.length + more - changed.length;
  return html`
    <h3>In the last hour</h3>
    ${topics.length === 0 ? html`<p>It changes the limits of no topic to which anything was published since ${clock(since)}.</p>`
      : changed.length === 0 ? html`<p>It would have refused as much as now: nothing more and nothing less of ${plural(others, 'topic')}.</p>`
      : html`
        <table><thead><tr><th scope="col">Topic</th><th scope="col" class="number">Published</th><th scope="col" class="number">Refused as it is</th>
          <th scope="col" class="number">Refused after it</th></tr></thead>
          <tbody>${changed.slice(0, mostRows).map(t => html`
            <tr key=${t.topic}><th scope="row" class="code"><a href=${topicLink(t.topic)}>${t.topic}</a></th><td class="number">${count(t.events)}</td>
              <td class="number"><${Refused} n=${t.refused_before} of=${t.events} /></td>
              <td class="number ${t.refused_after > t.refused_before ? 'bad' : ''}"><${Refused} n=${t.refused_after} of=${t.events} /></td></tr>`)}
          </tbody></table>
        ${changed.length > mostRows && html`<p class="muted">and ${plural(changed.length - mostRows, 'further topic')} with a smaller difference.</p>`}`}
    <p class="muted">By the publishes since ${clock(since)}${sidecars.counted < sidecars.live && ` of ${sidecars.counted} of ${sidecars.live} sidecars, those of this control plane`}${complete ? '' : ', some topics left out'}.
      A refused publish that was tried again counts twice.</p>`;
}

const Refused = ({n, of}) => (n === null ? html`<span class="muted" title="publish.per is set, and nobody counts by tenant">not known</span>`
  : html`${count(n)}${n > 0 && html` <small>${Math.max(1, Math.round((n / of) * 100))} %</small>`}`);
