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

// boundSecret is a secret that the host of a request may receive, with its
// value.
type boundSecret struct {
	Secret
	value []byte
}

func (s *Secret) isAllowedIn(place brig.SecretPlace) bool {
	if len(s.Places) == 0 {
		return place == brig.SecretHeader
	}
	return slices.Contains(s.Places, place)
}

// currentSecrets returns the sandbox's secrets. They are read from the store, so
// a request reads them once.
func (n *inspection) currentSecrets() []Secret {
	if n.secrets == nil {
		return nil
	}
	return n.secrets()
}

// secretsForHost returns the given secrets that the host may receive.
func (n *inspection) secretsForHost(all []Secret) (list []Secret) {
	for _, s := range all {
		allowed := slices.ContainsFunc(s.Hosts, func(pattern string) bool {
			rules := brig.Egress{Rules: []brig.EgressRule{{Host: pattern}}}
			v, _ := rules.Named(n.host, n.port)
			return pattern != "" && v == brig.Allowed
		})
		if allowed && s.Placeholder != "" {
			list = append(list, s)
		}
	}
	return list
}

// searchesResponses reports whether responses may be searched for values of the given secrets or of
// earlier secrets.
func (n *inspection) searchesResponses(secrets []Secret) bool {
	return len(secrets) > 0 || len(n.valuesSent.receivedBy(n.host)) > 0
}

// substitute replaces placeholders with values. If it returns a refusal,
// nothing has been sent.
func (x *exchange) substitute(out *http.Request) *refusal {
	bound, earlier := x.bound, x.n.valuesSent.receivedBy(x.n.host)
	if len(bound) == 0 && len(earlier) == 0 {
		return nil
	}
	if reason := findForeignCredentials(x.in, bound); reason != "" {
		return &refusal{http.StatusForbidden, reason}
	}
	// Redact all secrets bound to this host, not only those used in this
	// request: the response may echo a secret sent earlier.
	total := 0
	for _, s := range bound {
		value, err := secretValue(out.Context(), s)
		if err != nil || len(value) == 0 {
			return &refusal{http.StatusBadGateway, "the value of the secret " + s.Name + " is not to be had"}
		}
		if len(value) > brig.MaxBrokered {
			return &refusal{http.StatusBadGateway, "the value of the secret " + s.Name + " is longer than answers are searched for: " + brig.FormatBytes(int64(brig.MaxBrokered))}
		}
		if total += len(value); total > maxValues {
			return &refusal{http.StatusBadGateway, "the values of this host's secrets are together longer than answers are searched for: " + brig.FormatBytes(maxValues)}
		}
		x.grants = append(x.grants, boundSecret{s, value})
		x.exclusive = x.exclusive || s.Exclusive
	}
	before := headLength(out)
	if refused := x.substituteHeader(out.Header); refused != nil {
		return refused
	}
	if refused := x.substituteQuery(out.URL); refused != nil {
		return refused
	}
	if err := x.grow(headLength(out) - before); err != nil {
		return &refusal{http.StatusServiceUnavailable, "the sandbox's network has ended"}
	}
	if refused := x.substituteBody(out); refused != nil {
		return refused
	}
	if reason := x.checkCleartext(); reason != "" {
		return &refusal{http.StatusForbidden, reason}
	}
	x.n.valuesSent.add(x.grants)
	if refused := x.prepareScrubber(earlier); refused != nil {
		return refused
	}
	// The response is searched for values, so it must be neither compressed nor
	// partial: a value split over two partial responses would be found in
	// neither.
	out.Header.Set("Accept-Encoding", "identity")
	for _, name := range []string{
		"Range", "Request-Range", "If-Range", "A-Im", "Sec-Websocket-Extensions", "Grpc-Accept-Encoding", "Connect-Accept-Encoding",
	} {
		out.Header.Del(name)
	}
	return nil
}

func secretValue(ctx context.Context, s Secret) ([]byte, error) {
	if s.Value == nil {
		return nil, brig.Errorf(brig.Internal, "the secret %s has no value", s.Name)
	}
	return s.Value(ctx)
}

// swapsIn returns the replacements for a place, with values encoded by write.
func (x *exchange) swapsIn(place brig.SecretPlace, write func([]byte) []byte) *swaps {
	var list []swap
	for _, g := range x.grants {
		if g.isAllowedIn(place) {
			list = append(list, swap{old: []byte(g.Placeholder), new: write(g.value), name: g.Name})
		}
	}
	return newSwaps(list)
}

func identity(value []byte) []byte { return value }

// substituteHeader replaces placeholders in header fields, and in basic
// credentials.
func (x *exchange) substituteHeader(h http.Header) *refusal {
	s := x.swapsIn(brig.SecretHeader, identity)
	for name, values := range h {
		for i, v := range values {
			if refused := x.growHead(s.growth([]byte(v), nil)); refused != nil {
				return refused
			}
			var last string
			put := func(secret string) { last = secret; x.recordInserted(secret) }
			if with := s.replaceAll(v, put); last != "" {
				values[i] = with
			} else if scheme, pair, ok := parseBasic(name, v); ok {
				if refused := x.growHead(2 * s.growth([]byte(pair), nil)); refused != nil {
					return refused
				}
				if with := s.replaceAll(pair, put); last != "" {
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

// parseBasic splits basic credentials into the scheme and the decoded pair.
func parseBasic(name, value string) (scheme, pair string, ok bool) {
	scheme, coded, ok := strings.Cut(value, " ")
	if !ok || name != "Authorization" || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(coded), "="))
	return scheme, string(decoded), err == nil
}

// substituteQuery replaces placeholders in a query. Parameters without a
// placeholder are not re-encoded.
func (x *exchange) substituteQuery(u *url.URL) *refusal {
	s := x.swapsIn(brig.SecretQuery, identity)
	if s.count == 0 || u.RawQuery == "" {
		return nil
	}
	// An escape takes three bytes per byte, and the raw query is searched, too.
	whole, err := url.QueryUnescape(u.RawQuery)
	if err != nil {
		whole = u.RawQuery
	}
	if refused := x.growHead(3 * max(s.growth([]byte(whole), nil), s.growth([]byte(u.RawQuery), nil))); refused != nil {
		return refused
	}
	parts := strings.Split(u.RawQuery, "&")
	for i, p := range parts {
		key, value, has := strings.Cut(p, "=")
		parts[i] = x.substitutePart(s, key)
		if has {
			parts[i] += "=" + x.substitutePart(s, value)
		}
	}
	u.RawQuery = strings.Join(parts, "&")
	return nil
}

// maxHeadGrowth limits how many bytes the values may add to a request's header.
const maxHeadGrowth = maxHeader

// growHead records that the request's header grows by n bytes, and charges
// them.
func (x *exchange) growHead(n int64) *refusal {
	if n <= 0 {
		return nil
	}
	if x.growth += n; x.growth > maxHeadGrowth {
		return &refusal{http.StatusRequestHeaderFieldsTooLarge, "with the values of its secrets its header or target would be too long"}
	}
	return x.charge(2 * n)
}

// charge reserves more of the sandbox's memory for the request, until it has
// been served.
func (x *exchange) charge(n int64) *refusal {
	if !x.n.budget.reserve(n, x.n.budget.reservedForConnections()) {
		return &refusal{http.StatusServiceUnavailable, reasonNoMemory}
	}
	x.charged += n
	return nil
}

// discharge releases memory that charge has reserved.
func (x *exchange) discharge(n int64) {
	x.charged -= n
	x.n.budget.release(n)
}

func (x *exchange) substitutePart(s *swaps, escaped string) string {
	plain, err := url.QueryUnescape(escaped)
	if err != nil {
		plain = escaped
	}
	if !s.containsPlaceholder(plain) {
		return escaped
	}
	return url.QueryEscape(s.replaceAll(plain, x.recordInserted))
}
