package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// maxDetail is the maximum length of one detail of an event, in bytes.
const maxDetail = 512

// addDetail adds a detail to the events that the call writes from now on. Empty values are ignored.
func (a *callAudit) addDetail(key, value string) {
	if value == "" {
		return
	}
	if len(value) > maxDetail {
		value = value[:maxDetail] + "…"
	}
	if a.detail == nil {
		a.detail = map[string]string{}
	}
	a.detail[key] = value
}

// addWholeDetail is like addDetail, but does not truncate the value.
func (a *callAudit) addWholeDetail(key, value string) {
	delete(a.detail, key)
	if a.addDetail(key, value); value != "" {
		a.detail[key] = value
	}
}

// addActor adds the person and the session of the actor, because the name of the key identifies
// neither.
func (a *callAudit) addActor() {
	if p := a.actor.Person; p != nil {
		a.addDetail(brig.DetailSubject, p.Issuer+"#"+p.Subject)
	}
	a.addDetail(brig.DetailSession, a.actor.Session)
}

// addCode adds the hash and the language of the code that the call runs.
func (v *call) addCode(language brig.Language, code string) {
	if code != "" {
		v.setLanguage(language)
		v.hash = codeHash(code)
		v.addDetail(brig.DetailCode, v.hash)
		v.addDetail(brig.DetailLanguage, string(language))
	}
}

func codeHash(code string) string {
	sum := sha256.Sum256([]byte(code))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// addCommand adds the command that the call runs.
func (a *callAudit) addCommand(c brig.Command) {
	line := commandLine(c)
	a.hash = codeHash(line)
	a.addDetail(brig.DetailCommand, line)
}

// commandLine returns a command as one line.
func commandLine(c brig.Command) string {
	if c.Shell != "" {
		return c.Shell
	}
	return strings.Join(c.Argv, " ")
}

// addRecord adds the properties of a sandbox: its image, provider, egress
// rules, secrets and labels.
func (a *callAudit) addRecord(rec *brig.Record) {
	a.addDetail(brig.DetailName, rec.Spec.Name)
	a.addDetail(brig.DetailImage, rec.Digest)
	a.addDetail(brig.DetailProvider, rec.Provider)
	a.addDetail(brig.DetailRoute, rec.Route.Reason)
	if n := len(rec.Spec.Egress.Rules); n > 0 {
		a.addDetail(brig.DetailEgress, strconv.Itoa(n))
	}
	if len(rec.Spec.Secrets) > 0 {
		var names []string
		for _, u := range rec.Spec.Secrets {
			names = append(names, u.Name)
		}
		a.detail[brig.DetailSecrets] = strings.Join(names, ",") // not truncated: all names must be recorded
	}
	a.addLabels(rec.Spec.Labels)
}

func (a *callAudit) addLabels(labels map[string]string) {
	for k, value := range labels {
		a.addDetail(brig.DetailLabel+k, value)
	}
}

// addResult adds the outcome of a command or a program.
func (a *callAudit) addResult(r *brig.Result) {
	if r == nil || !r.Done {
		return
	}
	a.addDetail(brig.DetailExit, strconv.Itoa(r.ExitCode))
	a.addDetail(brig.DetailSignal, r.Signal)
	a.addEnd(r.Duration, r.TimedOut, r.OOMKilled)
}

func (a *callAudit) addEnd(d time.Duration, timedOut, oom bool) {
	a.addDetail(brig.DetailDuration, strconv.FormatInt(d.Milliseconds(), 10))
	switch {
	case oom:
		a.addDetail(brig.DetailVerdict, "oom_killed")
	case timedOut:
		a.addDetail(brig.DetailVerdict, "timed_out")
	}
}

// observedEvent returns an event that occurred in a sandbox without a request
// from a caller.
func (e *env) observedEvent(rec *brig.Record, op string, detail map[string]string) brig.Event {
	v := callAudit{detail: detail}
	v.addDetail(brig.DetailName, rec.Spec.Name)
	v.addLabels(rec.Spec.Labels)
	return brig.Event{
		At: e.Now().UTC(), Op: op, Tenant: rec.Tenant, Sandbox: rec.ID, Phase: brig.Observed, Detail: v.detail,
	}
}

// endedEvent returns the event that records the end of a sandbox.
func (e *env) endedEvent(rec *brig.Record) brig.Event {
	detail := map[string]string{}
	if x := rec.Exit; x != nil {
		detail[brig.DetailVerdict], detail[brig.DetailExit] = string(x.Reason), strconv.Itoa(x.Code)
	}
	return e.observedEvent(rec, brig.EndOp, detail)
}

// egressEvent returns the event that records a decision about one network
// access of a sandbox.
func (e *env) egressEvent(rec *brig.Record, d egress.Event) brig.Event {
	v := callAudit{}
	v.addDetail(brig.DetailHost, d.Host)
	v.addDetail(brig.DetailAddr, d.Addr)
	if d.Port != 0 {
		v.addDetail(brig.DetailPort, strconv.Itoa(d.Port))
	}
	v.addDetail(brig.DetailMethod, d.Method)
	v.addDetail(brig.DetailPath, d.Path)
	v.addDetail(brig.DetailRule, strconv.Itoa(d.Rule))
	v.addDetail(brig.DetailWhy, d.Why)
	v.addDetail(brig.DetailSecrets, strings.Join(d.Secrets, ","))
	v.addDetail(brig.DetailVerdict, "denied")
	if d.Allowed {
		v.addDetail(brig.DetailVerdict, "allowed")
	}
	event := e.observedEvent(rec, "egress."+string(d.Kind), v.detail)
	event.At = d.At.UTC()
	return event
}
