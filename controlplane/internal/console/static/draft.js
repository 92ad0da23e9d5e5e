// Unsaved edits of a policy: the tab keeps them until they are saved or undone, also across a reload.
import {parseJSON} from './api.js';

const key = name => 'sluice-draft:' + name;

// readDraft returns what keepDraft was given; null: nothing.
export function readDraft(name) {
  try {
    return parseJSON(sessionStorage.getItem(key(name)) ?? 'null');
  } catch {
    return null;
  }
}

// keepDraft keeps an object; null: nothing any more. A tab whose storage is full keeps none.
export function keepDraft(name, draft) {
  try {
    if (draft) sessionStorage.setItem(key(name), JSON.stringify(draft));
    else sessionStorage.removeItem(key(name));
  } catch {}
}
