package brig

import (
	"slices"
	"strings"
)

// HintValueAgain is the remedy for a change that lets a value go further.
const HintValueAgain = "give the value again, in value or value_b64: the change lets it go further than before"

// visible reports whether sandboxes receive the value itself. Their programs can
// send it everywhere, so no other reach is wider.
func (s *Secret) visible() bool { return len(s.Hosts) == 0 }

// Widens returns the fields by which s lets the value go where was does not, and
// the first host, place or name that is new, if the field is a list.
func (s *Secret) Widens(was Secret) (fields []string, added string) {
	if was.visible() {
		return nil, ""
	}
	if s.visible() {
		return []string{"hosts"}, ""
	}
	add := func(field string, wider bool, what string) {
		if wider {
			if fields = append(fields, field); len(fields) == 1 {
				added = what
			}
		}
	}
	host, more := uncovered(was.Hosts, s.Hosts, MatchHost)
	add("hosts", more, host)
	place, more := uncovered(placesOf(was), placesOf(*s), samePlace)
	add("places", more, string(place))
	add("exclusive", was.Exclusive && !s.Exclusive, "")
	name, more := uncovered(was.Allow, s.Allow, allows)
	add("allow", was.Exclusive && s.Exclusive && more, name)
	add("plain", s.Plain && !was.Plain, "")
	return fields, added
}

// Within returns s for a sandbox that was given the secret as it was then: the
// value may go only where both allow it. See reports whether the sandbox receives
// the value itself. Otherwise, without hosts, no host may receive it.
func (s *Secret) Within(given Secret) (out Secret, see bool) {
	out = *s
	switch {
	case given.visible():
		return out, out.visible()
	case out.visible():
		out.Hosts, out.Places, out.Exclusive, out.Allow, out.Plain = given.Hosts, given.Places, given.Exclusive, given.Allow, given.Plain
		return out, false
	}
	out.Hosts = common(s.Hosts, given.Hosts, MatchHost)
	if out.Places = common(placesOf(*s), placesOf(given), samePlace); len(out.Places) == 0 {
		out.Hosts = nil
	}
	switch {
	case !s.Exclusive:
		out.Allow = given.Allow
	case given.Exclusive:
		out.Allow = common(s.Allow, given.Allow, allows)
	}
	out.Exclusive, out.Plain = s.Exclusive || given.Exclusive, s.Plain && given.Plain
	return out, false
}

// placesOf returns the places of a secret with hosts.
func placesOf(s Secret) []SecretPlace {
	if len(s.Places) == 0 {
		return []SecretPlace{SecretHeader}
	}
	return s.Places
}

func samePlace(a, b SecretPlace) bool { return a == b }

// allows reports whether an entry of Allow includes another one.
func allows(wide, narrow string) bool {
	kind, _ := allowKind(wide)
	if of, _ := allowKind(narrow); of != kind {
		return false
	}
	if start, ok := strings.CutSuffix(wide, "*"); ok {
		rest := strings.TrimSuffix(narrow, "*")
		return len(rest) >= len(start) && strings.EqualFold(rest[:len(start)], start)
	}
	return strings.EqualFold(wide, narrow)
}

// uncovered returns the first pattern of now that no pattern of was includes.
func uncovered[P any](was, now []P, includes func(wide, narrow P) bool) (first P, found bool) {
	i := slices.IndexFunc(now, func(n P) bool {
		return !slices.ContainsFunc(was, func(w P) bool { return includes(w, n) })
	})
	if i < 0 {
		return first, false
	}
	return now[i], true
}

// common returns the patterns for what both lists include. Of two patterns, one
// includes the other or they have nothing in common.
func common[P comparable](a, b []P, includes func(wide, narrow P) bool) (out []P) {
	for _, x := range a {
		for _, y := range b {
			narrow := y
			if !includes(x, y) {
				if narrow = x; !includes(y, x) {
					continue
				}
			}
			if !slices.Contains(out, narrow) {
				out = append(out, narrow)
			}
		}
	}
	return out
}
