package e2b

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// Headers that name a sandbox and its port if the host name does not.
const (
	headerID   = "E2b-Sandbox-Id"
	headerPort = "E2b-Sandbox-Port"
)

// Ports of a sandbox that this API serves itself.
const (
	portEnvd = 49983
	portCode = 49999
)

// target is a port of a sandbox.
type target struct {
	id     string
	port   int
	byHost bool // whether the host name contains it
}

// target returns the sandbox port that r addresses. The host takes precedence
// over the headers.
func (a *API) target(r *http.Request) (target, bool, error) {
	t, ok, err := parseHost(r.Host, a.Domain)
	if ok || err != nil {
		return t, ok, err
	}
	id := r.Header.Get(headerID)
	if id == "" {
		return target{}, false, nil
	}
	if t.id, err = parseID(id); err == nil {
		t.port, err = parsePort(r.Header.Get(headerPort))
	}
	return t, err == nil, err
}

// parseHost parses a host like "8080-ID.domain". Under a foreign domain it
// accepts only ids in the format of this server's ids.
func parseHost(host, domain string) (target, bool, error) {
	label, parent, ok := strings.Cut(hostname(host), ".")
	if !ok || parent == "" {
		return target{}, false, nil
	}
	port, id, ok := strings.Cut(label, "-")
	if !ok || port == "" || strings.Trim(port, "0123456789") != "" {
		return target{}, false, nil
	}
	if domain == "" || parent != hostname(domain) {
		rest, ok := strings.CutPrefix(id, "sb")
		if !ok || rest == "" || !isID(rest) {
			return target{}, false, nil
		}
	}
	t := target{byHost: true}
	var err error
	if t.id, err = parseID(id); err == nil {
		t.port, err = parsePort(port)
	}
	return t, err == nil, err
}

// parseID returns the sandbox id in a request. Old clients append a client id
// to it.
func parseID(s string) (string, error) {
	id, rest, old := strings.Cut(s, "-")
	if !isID(id) || old && !isID(rest) {
		return "", brig.Errorf(brig.InvalidArgument, "Invalid sandbox ID")
	}
	return id, nil
}

func isID(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func parsePort(s string) (int, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || port == 0 {
		return 0, brig.Errorf(brig.InvalidArgument, "Invalid sandbox port")
	}
	return int(port), nil
}

// hostname returns the name in a Host header in lower case, without port and
// brackets.
func hostname(host string) string {
	host = strings.ToLower(host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
}

// ownHosts returns the hosts under which the control plane responds.
func ownHosts(o Options) map[string]bool {
	all := map[string]bool{"localhost": true}
	for _, h := range o.Hosts {
		all[hostname(h)] = true
	}
	if name := hostname(o.Domain); name != "" {
		all[name], all["api."+name], all["sandbox."+name] = true, true, true
	}
	delete(all, "")
	return all
}

// isOwnHost reports whether host is a name of the server itself. The check
// protects against DNS rebinding, where a foreign name resolves to this server.
// An IP address cannot be rebound.
func (a *API) isOwnHost(host string) bool {
	name := hostname(host)
	return a.hosts[name] || net.ParseIP(name) != nil
}
