package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// given are the members that answers add to a policy. A client may send them back; they are
// ignored.
var given = []string{"version", "updated_at", "updated_by"}

func (h *handler) listPolicies(w http.ResponseWriter, r *request) error {
	list, err := h.lists.enter(h.Catalog.State(), r.held.Share)
	if err != nil {
		return err
	}
	defer h.lists.leave(list, r.held.Share)
	return write(w, r, http.StatusOK, list.body)
}

// policyLists are the answers with all policies that are being read. Requests at a time share the bytes of one, so that
// clients that do not read it take no copy each; one of them has these bytes counted.
type policyLists struct {
	mu   sync.Mutex
	last *policyList // nil: nobody reads the last one any more
}

// policyList is the answer with all policies of a state.
type policyList struct {
	state *catalog.State
	body  []byte

	// Guarded by policyLists.mu.
	readers map[*budget.Share]int
	payer   *budget.Share // has the bytes counted: one of the readers
}

// enter returns the list of a state for a reader, until leave is called.
func (l *policyLists) enter(state *catalog.State, reader *budget.Share) (*policyList, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil || l.last.state != state {
		body, err := encode(policiesBody{state.Entries, state.Revision})
		if err != nil {
			return nil, fmt.Errorf("encode the policies: %w", err)
		}
		if err := reader.TryTake(len(body)); err != nil {
			return nil, err
		}
		l.last = &policyList{state: state, body: body, readers: map[*budget.Share]int{}, payer: reader}
	}
	l.last.readers[reader]++
	return l.last, nil
}

// leave ends what enter began. Where the reader's identity has the bytes counted and reads them no more, another has.
func (l *policyLists) leave(list *policyList, reader *budget.Share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list.readers[reader]--; list.readers[reader] > 0 {
		return
	}
	delete(list.readers, reader)
	if list.payer == reader {
		reader.Give(len(list.body))
		for next := range list.readers {
			list.payer = next
			next.Take(len(list.body))
			break
		}
	}
	if len(list.readers) == 0 && l.last == list {
		l.last = nil
	}
}

// policiesBody has all policies.
type policiesBody struct {
	Policies []catalog.Entry `json:"policies" schema:"Policies"`
	Revision int64           `json:"revision"`
}

func (h *handler) getPolicy(w http.ResponseWriter, r *request) error {
	entry, err := h.Catalog.Get(r.PathValue("name"))
	if err != nil {
		return err
	}
	asked, err := readCondition(r.Header)
	if err != nil {
		return err
	}
	if err := (condition{match: asked.match}).permits(entry.Version); err != nil {
		return err
	}
	w.Header().Set("ETag", etag(entry.Version))
	if asked.fresh(entry.Version) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return h.answer(w, r, http.StatusOK, entry)
}

// readChange reads the condition and the body of a change. A dry run needs only the right to read.
func readChange(w http.ResponseWriter, r *request, planned bool) (asked condition, body []byte, err error) {
	if !planned {
		err = r.sender.mayEdit(r.PathValue("name"))
	}
	if err == nil {
		asked, err = readCondition(r.Header)
	}
	if err != nil {
		return asked, nil, err
	}
	body, err = readBody(w, r, maxBodyBytes)
	return asked, body, err
}

// putPolicy puts a policy, or answers with the plan of a dry run.
func (h *handler) putPolicy(w http.ResponseWriter, r *request) error {
	planned := r.DryRun()
	if planned {
		leave, err := r.enterDocument()
		if err != nil {
			return err
		}
		defer leave()
	}
	asked, body, err := readChange(w, r, planned)
	if err != nil {
		return err
	}
	var done catalog.Applied
	err = h.inTurn(r.Context(), planned, func(ctx context.Context) error {
		p, err := namedPolicy(r.PathValue("name"), body)
		if err != nil {
			return err
		}
		var object map[string]json.RawMessage
		_ = json.Unmarshal(body, &object) // namedPolicy has found it to be one
		by, err := r.sender.authorOf(object)
		if err == nil {
			done, err = h.Catalog.Put(ctx, by, p, asked.permits, planned)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case planned:
		return h.answerChanges(w, r, true, done)
	}
	return h.answerPut(w, r, &done)
}

// answerPut answers with the policy that was put.
func (h *handler) answerPut(w http.ResponseWriter, r *request, done *catalog.Applied) error {
	change := done.Changes[0]
	w.Header().Set("ETag", etag(change.To.Version))
	status := http.StatusOK
	if change.From == nil {
		status = http.StatusCreated
	}
	return h.answer(w, r, status, change.To)
}

// namedPolicy parses the policy in a body, with the name of the path, and not the reason. The error has every
// bad field, the name among them.
func namedPolicy(name string, body []byte) (policy.Policy, error) {
	p, err := policy.ParsePolicy(body, slices.Concat(given, []string{"reason"})...)
	said := p.Name
	var refused *wire.Error
	if errors.As(err, &refused) {
		said = textMember(body, "name")
	}
	wrong := nameFault(name, said)
	blamed := refused != nil && slices.ContainsFunc(refused.Fields, func(f wire.FieldError) bool { return f.Field == "name" })
	if wrong == "" || blamed {
		p.Name = name
		return p, err
	}
	all := wire.Errorf(wire.InvalidPolicy, "name: %s", wrong)
	all.Fields = []wire.FieldError{{Field: "name", Message: wrong}}
	if refused != nil {
		all.Msg += "; " + refused.Msg
		all.Fields = append(all.Fields, refused.Fields...)
	}
	return policy.Policy{}, all
}

// nameFault describes a fault of the name in the path, or of the name in the body, "" for none; ""
// if both are right.
func nameFault(path, said string) string {
	switch {
	case !policy.ValidName(path):
		return fmt.Sprintf("the path's name must be a topic (1 to %d of A-Z a-z 0-9 . _ -), or a prefix of one and a * at the end",
			wire.MaxTopicBytes)
	case said != "" && said != path:
		return fmt.Sprintf("must be %q, as in the path, or be left out", path)
	}
	return ""
}

// textMember returns the text of a member of an object; "" if there is none.
func textMember(body []byte, name string) (text string) {
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) == nil {
		_ = json.Unmarshal(object[name], &text) // namedPolicy refuses other values
	}
	return text
}

// deletePolicy deletes a policy, or answers with the plan of a dry run.
func (h *handler) deletePolicy(w http.ResponseWriter, r *request) error {
	planned := r.DryRun()
	if !planned {
		if err := r.sender.may(admin); err != nil {
			return err
		}
	}
	asked, err := readCondition(r.Header)
	if err != nil {
		return err
	}
	by := r.sender.author()
	if by.Reason = r.Text("reason"); len(by.Reason) > maxReasonBytes {
		return badReason("query parameter")
	}
	done, err := h.Catalog.Delete(r.Context(), by, r.PathValue("name"), asked.permits, planned)
	switch {
	case err != nil:
		return err
	case planned:
		return h.answerChanges(w, r, true, done)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
