package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// maxDetail bounds one detail of an event, in bytes.
const maxDetail = 512

// say adds a detail to the events that the call writes from now on. What is
// empty is none.
func (v *visit) say(key, value string) {
	if value == "" {
		return
	}
	if len(value) > maxDetail {
		value = value[:maxDetail] + "…"
	}
	if v.detail == nil {
		v.detail = map[string]string{}
	}
	v.detail[key] = value
}

// sayActor says who acts, where a key's name does not.
func (v *visit) sayActor() {
	if p := v.actor.Person; p != nil {
		v.say(brig.DetailSubject, p.Issuer+"#"+p.Subject)
	}
	v.say(brig.DetailSession, v.actor.Session)
}

// sayCode says which code is run.
func (v *visit) sayCode(language brig.Language, code string) {
	if code != "" {
		v.speaks(language)
		v.hash = codeHash(code)
		v.say(brig.DetailCode, v.hash)
		v.say(brig.DetailLanguage, string(language))
	}
}

func codeHash(code string) string {
	sum := sha256.Sum256([]byte(code))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// sayCommand says which command is run.
func (v *visit) sayCommand(c brig.Command) {
	line := commandLine(c)
	v.hash = codeHash(line)
	v.say(brig.DetailCommand, line)
}

// commandLine is a command in one line.
func commandLine(c brig.Command) string {
	if c.Shell != "" {
		return c.Shell
	}
	return strings.Join(c.Argv, " ")
}

// sayRecord says what a sandbox is made of.
func (v *visit) sayRecord(rec *brig.Record) {
	v.say(brig.DetailName, rec.Spec.Name)
	v.say(brig.DetailImage, rec.Digest)
	v.say(brig.DetailProvider, rec.Provider)
	v.say(brig.DetailRoute, rec.Route.Reason)
	if n := len(rec.Spec.Egress.Rules); n > 0 {
		v.say(brig.DetailEgress, strconv.Itoa(n))
	}
	if len(rec.Spec.Secrets) > 0 {
		var names []string
		for _, u := range rec.Spec.Secrets {
			names = append(names, u.Name)
		}
		v.detail[brig.DetailSecrets] = strings.Join(names, ",") // all of them
	}
	v.sayLabels(rec.Spec.Labels)
}

func (v *visit) sayLabels(labels map[string]string) {
	for k, value := range labels {
		v.say(brig.DetailLabel+k, value)
	}
}

// sayResult says how a command or a program ended.
func (v *visit) sayResult(r *brig.Result) {
	if r == nil || !r.Done {
		return
	}
	v.say(brig.DetailExit, strconv.Itoa(r.ExitCode))
	v.say(brig.DetailSignal, r.Signal)
	v.sayEnd(r.Duration, r.TimedOut, r.OOMKilled)
}

func (v *visit) sayEnd(d time.Duration, timedOut, oom bool) {
	v.say(brig.DetailDuration, strconv.FormatInt(d.Milliseconds(), 10))
	switch {
	case oom:
		v.say(brig.DetailVerdict, "oom_killed")
	case timedOut:
		v.say(brig.DetailVerdict, "timed_out")
	}
}

// details are a copy of what was said: events are written while calls go on.
func (v *visit) details() map[string]string { return maps.Clone(v.detail) }

// observed is an event that nobody asked for, about a sandbox.
func (e *Engine) observed(rec *brig.Record, op string, detail map[string]string) brig.Event {
	v := visit{detail: detail}
	v.say(brig.DetailName, rec.Spec.Name)
	v.sayLabels(rec.Spec.Labels)
	return brig.Event{
		At: e.Now().UTC(), Op: op, Tenant: rec.Tenant, Sandbox: rec.ID, Phase: brig.Observed, Detail: v.detail,
	}
}

// ended is the event of a sandbox's end.
func (e *Engine) ended(rec *brig.Record) brig.Event {
	detail := map[string]string{}
	if x := rec.Exit; x != nil {
		detail[brig.DetailVerdict], detail[brig.DetailExit] = string(x.Reason), strconv.Itoa(x.Code)
	}
	return e.observed(rec, "sandbox.end", detail)
}

// egressEvent is the event of a decision about what a sandbox asked of the
// network.
func (e *Engine) egressEvent(rec *brig.Record, d egress.Event) brig.Event {
	v := visit{}
	v.say(brig.DetailHost, d.Host)
	v.say(brig.DetailAddr, d.Addr)
	if d.Port != 0 {
		v.say(brig.DetailPort, strconv.Itoa(d.Port))
	}
	v.say(brig.DetailMethod, d.Method)
	v.say(brig.DetailPath, d.Path)
	v.say(brig.DetailRule, strconv.Itoa(d.Rule))
	v.say(brig.DetailWhy, d.Why)
	v.say(brig.DetailSecrets, strings.Join(d.Secrets, ","))
	v.say(brig.DetailVerdict, "denied")
	if d.Allowed {
		v.say(brig.DetailVerdict, "allowed")
	}
	event := e.observed(rec, "egress."+string(d.What), v.detail)
	event.At = d.At.UTC()
	return event
}
