package egress

import (
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/brig-run/brig"
)

// dnsTTL is the TTL of a DNS response in seconds. The address of a name changes only after
// thousands of other names were looked up.
const dnsTTL = 60

// maxDNSQuery limits the size of a DNS query: one name and its options.
const maxDNSQuery = 4 << 10

// answerDNS responds to one DNS message based on the rules alone, so that no DNS query of a sandbox
// causes network traffic. It returns nil if the message is not a query.
func (s *Session) answerDNS(message []byte) []byte {
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
		return buildDNSReply(reply, nil, nil)
	}
	if _, err := p.Question(); err == nil || q.Class != dnsmessage.ClassINET {
		reply.RCode = dnsmessage.RCodeRefused
		return buildDNSReply(reply, &q, nil)
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	ok := brig.ValidHost(name) && s.rules().Answers(name)
	s.report(Event{Kind: Lookup, Host: name, Allowed: ok, Rule: -1, Why: reasonIfNot(ok, "no rule allows the name")})
	if !ok {
		reply.RCode = dnsmessage.RCodeNameError
		return buildDNSReply(reply, &q, nil)
	}
	if q.Type != dnsmessage.TypeA {
		return buildDNSReply(reply, &q, nil) // the name exists, but has no record of that type
	}
	return buildDNSReply(reply, &q, &dnsmessage.AResource{A: s.names.assignAddress(name).As4()})
}

func buildDNSReply(h dnsmessage.Header, q *dnsmessage.Question, a *dnsmessage.AResource) []byte {
	b := dnsmessage.NewBuilder(nil, h)
	b.EnableCompression()
	if q != nil {
		if b.StartQuestions() != nil || b.Question(*q) != nil {
			return nil
		}
	}
	if a != nil {
		head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: dnsTTL}
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

func reasonIfNot(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}
