package brig

import (
	"slices"
	"strings"
)

// HintValueAgain is the hint for a change that allows a value to reach more
// destinations.
const HintValueAgain = "give the value again, in value or value_b64: the change lets it go further than before"

// isVisible reports whether sandboxes receive the value itself. This is the widest
// reach, because programs can send the value to any destination.
func (s *Secret) isVisible() bool { return len(s.Hosts) == 0 }

// Widens returns the fields of s that allow the value to reach destinations that
// the previous secret did not allow. If the first of them is a list, added is its
// first new host, place or name.
func (s *Secret) Widens(previous Secret) (fields []string, added string) {
	if previous.isVisible() {
		return nil, ""
	}
	if s.isVisible() {
		return []string{"hosts"}, ""
	}
	add := func(field string, wider bool, newEntry string) {
		if wider {
			if fields = append(fields, field); len(fields) == 1 {
				added = newEntry
			}
		}
	}
	host, found := firstUncovered(previous.Hosts, s.Hosts, MatchHost)
	add("hosts", found, host)
	place, found := firstUncovered(placesOf(previous), placesOf(*s), samePlace)
	add("places", found, string(place))
	add("exclusive", previous.Exclusive && !s.Exclusive, "")
	name, found := firstUncovered(previous.Allow, s.Allow, allows)
	add("allow", previous.Exclusive && s.Exclusive && found, name)
	add("plain", s.Plain && !previous.Plain, "")
	return fields, added
}

// Within restricts s for a sandbox that was created with an earlier state of the
// secret: the value may reach only destinations that both states allow. visible
// reports whether the sandbox receives the value itself. If it is false and out has
// no hosts, no host may receive the value.
func (s *Secret) Within(earlier Secret) (out Secret, visible bool) {
	out = *s
	switch {
	case earlier.isVisible():
		return out, out.isVisible()
	case out.isVisible():
		out.Hosts, out.Places, out.Exclusive, out.Allow, out.Plain = earlier.Hosts, earlier.Places, earlier.Exclusive, earlier.Allow, earlier.Plain
		return out, false
	}
	out.Hosts = intersect(s.Hosts, earlier.Hosts, MatchHost)
	if out.Places = intersect(placesOf(*s), placesOf(earlier), samePlace); len(out.Places) == 0 {
		out.Hosts = nil
	}
	switch {
	case !s.Exclusive:
		out.Allow = earlier.Allow
	case earlier.Exclusive:
		out.Allow = intersect(s.Allow, earlier.Allow, allows)
	}
	out.Exclusive, out.Plain = s.Exclusive || earlier.Exclusive, s.Plain && earlier.Plain
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

// firstUncovered returns the first pattern of after that no pattern of before includes.
func firstUncovered[P any](before, after []P, includes func(wide, narrow P) bool) (first P, found bool) {
	i := slices.IndexFunc(after, func(n P) bool {
		return !slices.ContainsFunc(before, func(w P) bool { return includes(w, n) })
	})
	if i < 0 {
		return first, false
	}
	return after[i], true
}

// intersect returns the intersection of two lists of patterns. Of any two patterns,
// either one includes the other, or they match nothing in common.
func intersect[P comparable](a, b []P, includes func(wide, narrow P) bool) (out []P) {
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
