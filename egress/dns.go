package egress

import (
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/brig-run/brig"
)

// nameTTL is for how many seconds an answer may be remembered. The address
// that stands for a name never changes.
const nameTTL = 60

// answer answers one DNS message, from the rules alone: nothing that a sandbox
// asks makes a packet go anywhere. No answer is for what is no question.
func (s *Session) answer(message []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil || h.Response {
		return nil
	}
	reply := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	q, err := p.Question()
	if err != nil || h.OpCode != 0 {
		reply.RCode = dnsmessage.RCodeFormatError
		if h.OpCode != 0 {
			reply.RCode = dnsmessage.RCodeNotImplemented
		}
		return build(reply, nil, nil)
	}
	if _, err := p.Question(); err == nil || q.Class != dnsmessage.ClassINET {
		reply.RCode = dnsmessage.RCodeRefused
		return build(reply, &q, nil)
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	ok := brig.ValidHost(name) && s.rules().Answers(name)
	s.report(Event{What: Lookup, Host: name, Allowed: ok, Rule: -1, Why: because(ok, "no rule allows the name")})
	if !ok {
		reply.RCode = dnsmessage.RCodeNameError
		return build(reply, &q, nil)
	}
	if q.Type != dnsmessage.TypeA {
		return build(reply, &q, nil) // there is such a name, with nothing of that type
	}
	addr, ok := s.names.address(name)
	if !ok {
		reply.RCode = dnsmessage.RCodeServerFailure
		return build(reply, &q, nil)
	}
	return build(reply, &q, &dnsmessage.AResource{A: addr.As4()})
}

func build(h dnsmessage.Header, q *dnsmessage.Question, a *dnsmessage.AResource) []byte {
	b := dnsmessage.NewBuilder(nil, h)
	b.EnableCompression()
	if q != nil {
		if b.StartQuestions() != nil || b.Question(*q) != nil {
			return nil
		}
	}
	if a != nil {
		head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: nameTTL}
		if b.StartAnswers() != nil || b.AResource(head, *a) != nil {
			return nil
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}

func because(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}
