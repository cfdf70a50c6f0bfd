package e2b

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// The headers that name a sandbox and a port of it, where the host does not.
const (
	headerID   = "E2b-Sandbox-Id"
	headerPort = "E2b-Sandbox-Port"
)

// The ports of a sandbox that the door serves itself.
const (
	portEnvd = 49983
	portCode = 49999
)

// target is a port of a sandbox.
type target struct {
	id     string
	port   int
	byHost bool // the host named it
}

// target returns what r is for: the host's word counts before the headers'.
func (d *Door) target(r *http.Request) (target, bool, error) {
	t, ok, err := parseHost(r.Host, d.Domain)
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

// parseHost finds the sandbox in a host like "8080-ID.domain". Under a domain
// that is not ours only what must be a sandbox of ours is taken for one.
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

// parseID returns the sandbox that a client means. Old clients put their own
// id behind it.
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

// hostname returns the name in a Host header: lower case, no port, no
// brackets.
func hostname(host string) string {
	host = strings.ToLower(host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
}

// names are the hosts under which the control plane answers.
func names(o Options) map[string]bool {
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

// isOurs tells our own hosts from those to which somebody else's name was made
// to point, for a browser's sake. Nobody can do that with an address.
func (d *Door) isOurs(host string) bool {
	name := hostname(host)
	return d.hosts[name] || net.ParseIP(name) != nil
}
