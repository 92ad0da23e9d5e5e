// All fields that are in force for a name, each with the policy that its value comes from.
import {html, policyLink} from './ui.js';
import {fields} from './fields.js';
import {get, groupFields, groupNames, inherited, matching, shown} from './policy.js';

// origin is the value of a field, and the policy that sets it; '' stands for the defaults.
function origin(path, name, policies) {
  const value = get(policies.find(p => p.name === name), path);
  return value === undefined ? inherited(path, name, policies) : {value, from: name};
}

export function InForce({name, policies}) {
  const groups = groupNames([policies.find(p => p.name === name), ...matching(name, policies)]);
  const all = [...fields.filter(f => !f.members), ...groups.flatMap(groupFields)];
  return html`
    <section class="card" aria-label="In force"><details>
      <summary><h2>In force</h2> <span class="muted">every field, and the policy that it comes from</span></summary>
      <div class="across"><table class="inforce"><thead><tr><th scope="col">Field</th><th scope="col">Value</th><th scope="col">From</th></tr></thead>
        <tbody>${all.map(f => ({path: f.path, kind: f.kind, ...origin(f.path, name, policies)})).map(f => html`
          <tr key=${f.path}><th scope="row" class="code">${f.path}</th><td class="code">${f.kind === 'json' && f.value ? '{…}' : shown(f.value ?? null)}</td>
            <td>${f.from === '' ? html`<span class="muted">default</span>` : f.from === name ? html`<b>this policy</b>` : html`<a class="code" href=${policyLink(f.from)}>${f.from}</a>`}</td></tr>`)}
        </tbody></table></div>
    </details></section>`;
}
