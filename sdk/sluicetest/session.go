package sluicetest

import (
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// session is one WebSocket connection's protocol.
type session struct {
	sidecar *Sidecar
	socket  *socket
	members []*member // guarded by the sidecar's lock
	frame   []byte    // reused
	mute    bool      // nothing is answered any more
}

// serve answers requests until the connection ends.
func (s *session) serve() {
	defer func() {
		s.sidecar.mu.Lock()
		defer s.sidecar.mu.Unlock()
		for _, m := range s.members {
			m.leave()
		}
	}()
	for {
		text, err := s.socket.read()
		if err != nil {
			return
		}
		if most := s.sidecar.opts.FrameBytes; most > 0 && len(text) > most {
			s.socket.sendClose(tooBig)
			return
		}
		request, bad := wire.DecodeRequest(text, wire.DefaultLimits())
		if bad == nil {
			fate := Served
			if s.sidecar.opts.Fate != nil {
				fate = s.sidecar.opts.Fate(request.Op)
			}
			switch fate {
			case BrokenBefore:
				return
			case Overheard:
				continue
			}
			s.mute = fate == BrokenAfter
			bad = s.handle(request)
		}
		if s.mute {
			return
		}
		if bad != nil {
			s.send(wire.AppendErr(s.frame[:0], bad, request.Corr, request.HasCorr))
		}
	}
}

func (s *session) send(frame []byte) {
	s.frame = frame
	if s.mute {
		return
	}
	s.socket.send(opText, frame)
}

func (s *session) handle(r *wire.Request) *wire.Error {
	if r.Op == wire.OpPublish {
		return s.publish(r)
	}
	s.sidecar.mu.Lock()
	defer s.sidecar.mu.Unlock()
	if bad := s.control(r); bad != nil {
		return bad
	}
	if r.Op == wire.OpNack {
		s.sidecar.topic(r.Topic).deliver() // may well come before the answer, which waits for the store
	}
	s.send(wire.AppendOK(s.frame[:0], r.Corr, r.HasCorr))
	if r.Op == wire.OpSubscribe && r.Subscribe.Rebalance {
		s.send(wire.AppendAssignment(s.frame[:0], wire.OpAssigned, r.Topic, r.Group, []int{0})) // it shares with nobody
	}
	s.sidecar.topic(r.Topic).deliver()
	return nil
}

func (s *session) publish(r *wire.Request) *wire.Error {
	if r.IsBatch {
		if burst := s.sidecar.opts.Burst; burst > 0 && len(r.Events) > burst {
			return wire.Errorf(wire.BadRequest, "a batch of %d is larger than the burst of %d", len(r.Events), burst)
		}
		results := s.sidecar.publishAll(r.Topic, r.Events)
		s.send(wire.AppendResults(s.frame[:0], results, r.Corr, r.HasCorr))
		return nil
	}
	if r.Publish.Event.Topic == "" {
		r.Publish.Event.Topic = r.Topic
	}
	s.sidecar.mu.Lock()
	defer s.sidecar.mu.Unlock()
	result := s.sidecar.publish(&r.Publish)
	if result.Err != nil {
		return result.Err
	}
	s.send(wire.AppendReceipt(s.frame[:0], &result.Receipt, r.Corr, r.HasCorr))
	s.sidecar.topic(r.Publish.Event.Topic).deliver()
	return nil
}

// control does what a request asks for that is no publish. The lock is held.
func (s *session) control(r *wire.Request) *wire.Error {
	switch r.Op {
	case wire.OpPing:
		return nil
	case wire.OpAuth:
		if r.Token == "wrong" {
			return wire.Errorf(wire.Unauthorized, "the token is not valid")
		}
		return nil
	}
	at := slices.IndexFunc(s.members, func(m *member) bool { return m.topicName == r.Topic && m.groupName == r.Group })
	if r.Op == wire.OpSubscribe {
		if at >= 0 {
			return wire.Errorf(wire.AlreadySubscribed, "this connection is subscribed already")
		}
		m := s.sidecar.topic(r.Topic).join(s.socket, r)
		if d := s.sidecar.opts.AckDeadline; d > 0 {
			m.deadlineMS = d.Milliseconds()
		}
		s.members = append(s.members, m)
		return nil
	}
	if at < 0 {
		return wire.Errorf(wire.NotSubscribed, "this connection is not subscribed")
	}
	m := s.members[at]
	if refuse := s.sidecar.opts.RefuseSettling; refuse != nil && (r.Op == wire.OpAck || r.Op == wire.OpNack) {
		if bad := refuse(r.Op, r.IDs); bad != nil {
			return bad
		}
	}
	switch r.Op {
	case wire.OpUnsubscribe:
		m.leave()
		s.members = slices.Delete(s.members, at, at+1)
	case wire.OpAck:
		m.ack(r.IDs)
	case wire.OpNack:
		m.giveBack(r.IDs)
	case wire.OpModAck:
		for _, id := range r.IDs {
			if _, ok := m.inflight[id]; !ok {
				return wire.Errorf(wire.UnknownID, "%q is not in flight", id)
			}
		}
		m.group.extended++
	case wire.OpPause, wire.OpResume:
		m.paused = r.Op == wire.OpPause
	}
	return nil
}
