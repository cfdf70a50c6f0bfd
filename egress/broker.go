package egress

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// grant is a secret that the host of a request may have, with its value.
type grant struct {
	Secret
	value []byte
}

func (s *Secret) in(place brig.SecretPlace) bool {
	if len(s.Places) == 0 {
		return place == brig.SecretHeader
	}
	return slices.Contains(s.Places, place)
}

// bound returns the secrets whose values a host may have.
func (n *inspection) bound() (list []Secret) {
	if n.secrets == nil {
		return nil
	}
	for _, s := range n.secrets() {
		may := slices.ContainsFunc(s.Hosts, func(pattern string) bool {
			rules := brig.Egress{Rules: []brig.EgressRule{{Host: pattern}}}
			v, _ := rules.Named(n.host, n.port)
			return pattern != "" && v == brig.Allowed
		})
		if may && s.Placeholder != "" {
			list = append(list, s)
		}
	}
	return list
}

// broker puts values in the place of placeholders. Nothing has been sent when
// it refuses.
func (x *exchange) broker(out *http.Request) *refusal {
	bound, earlier := x.n.bound(), x.n.given.to(x.n.host)
	if len(bound) == 0 && len(earlier) == 0 {
		return nil
	}
	if why := foreign(x.in, bound); why != "" {
		return &refusal{http.StatusForbidden, why}
	}
	// All of their values, not only of those that are in this request: what
	// an earlier one has told the host it may tell us now.
	for _, s := range bound {
		value, err := valueOf(out.Context(), s)
		if err != nil || len(value) == 0 {
			return &refusal{http.StatusBadGateway, "the value of the secret " + s.Name + " is not to be had"}
		}
		x.grants = append(x.grants, grant{s, value})
	}
	if no := x.putHeader(out.Header); no != nil {
		return no
	}
	x.putQuery(out.URL)
	if no := x.putBody(out); no != nil {
		return no
	}
	if why := x.exposed(); why != "" {
		return &refusal{http.StatusForbidden, why}
	}
	x.n.given.add(x.grants)
	x.scrub = x.n.scrubber(append(earlier, x.grants...), x.pairs)
	// What comes back is searched: so it has to be in the clear, and whole. A
	// value that is asked for in two halves would not be found in either.
	out.Header.Set("Accept-Encoding", "identity")
	for _, name := range []string{"Range", "If-Range", "Sec-Websocket-Extensions"} {
		out.Header.Del(name)
	}
	return nil
}

func valueOf(ctx context.Context, s Secret) ([]byte, error) {
	if s.Value == nil {
		return nil, brig.Errorf(brig.Internal, "the secret %s has no value", s.Name)
	}
	return s.Value(ctx)
}

// swapsFor returns what to replace in a place, with values as they have to be
// written there.
func (x *exchange) swapsFor(place brig.SecretPlace, write func([]byte) []byte) *swaps {
	var list []swap
	for _, g := range x.grants {
		if g.in(place) {
			list = append(list, swap{old: []byte(g.Placeholder), new: write(g.value), name: g.Name})
		}
	}
	return newSwaps(list)
}

func asIs(value []byte) []byte { return value }

// putHeader puts values into the fields of a header, and into basic
// credentials.
func (x *exchange) putHeader(h http.Header) *refusal {
	s := x.swapsFor(brig.SecretHeader, asIs)
	for name, values := range h {
		for i, v := range values {
			var last string
			put := func(secret string) { last = secret; x.put(secret) }
			if with := s.text(v, put); last != "" {
				values[i] = with
			} else if scheme, pair, ok := basic(name, v); ok {
				if with := s.text(pair, put); last != "" {
					before := strings.TrimSpace(v[len(scheme):])
					after := base64.StdEncoding.EncodeToString([]byte(with))
					values[i] = scheme + " " + after
					x.pairs = append(x.pairs, swap{old: []byte(after), new: []byte(before), name: last})
				}
			}
			if last != "" && hasControl(strings.ReplaceAll(values[i], "\t", " ")) {
				return &refusal{http.StatusBadGateway, "the value of the secret " + last + " cannot be in a header"}
			}
		}
	}
	return nil
}

// basic takes basic credentials apart.
func basic(name, value string) (scheme, pair string, ok bool) {
	scheme, coded, ok := strings.Cut(value, " ")
	if !ok || name != "Authorization" || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(coded), "="))
	return scheme, string(decoded), err == nil
}

// putQuery puts values into a query. What has no placeholder stays as it was
// written.
func (x *exchange) putQuery(u *url.URL) {
	s := x.swapsFor(brig.SecretQuery, asIs)
	if s.count == 0 || u.RawQuery == "" {
		return
	}
	parts := strings.Split(u.RawQuery, "&")
	for i, p := range parts {
		key, value, has := strings.Cut(p, "=")
		parts[i] = x.putPart(s, key)
		if has {
			parts[i] += "=" + x.putPart(s, value)
		}
	}
	u.RawQuery = strings.Join(parts, "&")
}

func (x *exchange) putPart(s *swaps, escaped string) string {
	plain, err := url.QueryUnescape(escaped)
	if err != nil {
		plain = escaped
	}
	if !s.in(plain) {
		return escaped
	}
	return url.QueryEscape(s.text(plain, x.put))
}
