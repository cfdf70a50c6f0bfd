package envd

import (
	"cmp"
	"context"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// call is what the answers to one request need to know of it.
type call struct {
	box Sandbox
	// user is who the caller wants to be inside; empty is the default.
	user string
	// timeout is how long a stream may last; 0 is for ever.
	timeout time.Duration
	// every is after how much silence a stream shows that it lives.
	every time.Duration
	out   *writer
}

type callKey struct{}

// streams are the methods whose Connect-Timeout-Ms we count ourselves: taken
// as the deadline of the request it would cut the end off the answer.
var streams = [...]string{"/process.Process/Start", "/process.Process/Connect", "/filesystem.Filesystem/WatchDir"}

const timeoutHeader = "Connect-Timeout-Ms"

// withCall returns a copy of r whose context carries its call.
func withCall(r *http.Request, s Sandbox, out *writer) *http.Request {
	c := &call{box: s, every: keepalive(r.Header.Get("Keepalive-Ping-Interval")), out: out}
	if c.user, _, _ = r.BasicAuth(); s.Token != "" && r.Header.Get("X-Access-Token") == "" {
		c.user = "" // a signature is for the user that it names
	}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	for _, p := range streams {
		if r.URL.Path != p {
			continue
		}
		// One that is wrong stays, for the library to refuse it.
		if d, ok := timeout(r.Header.Get(timeoutHeader)); ok {
			c.timeout = d
			r.Header = r.Header.Clone()
			r.Header.Del(timeoutHeader)
		}
	}
	return r
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// timeout reads a Connect-Timeout-Ms: at most ten digits.
func timeout(s string) (time.Duration, bool) {
	ms, err := strconv.ParseUint(s, 10, 63)
	return time.Duration(ms) * time.Millisecond, err == nil && len(s) <= 10
}

// keepalive reads a Keepalive-Ping-Interval, in seconds.
func keepalive(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= 24*3600 {
		return time.Duration(n) * time.Second
	}
	return 90 * time.Second
}

// home is where a user lives, if there is such a one.
func home(user string) (string, bool) {
	switch user {
	case "user":
		return "/home/user", true
	case "root":
		return "/root", true
	}
	return "", false
}

// who is the user that the request asks for, and its home.
func (c *call) who() (user, dir string, err error) {
	user = cmp.Or(c.user, c.box.User, "user")
	dir, ok := home(user)
	if !ok {
		return "", "", brig.Errorf(brig.Unauthenticated, "invalid username: '%s'", clip(user))
	}
	return user, dir, nil
}

// path is where a name that the request gives leads.
func (c *call) path(name string) (brig.Path, error) {
	user, dir, err := c.who()
	if err != nil {
		return brig.Path{}, err
	}
	abs, err := resolve(dir, name)
	return brig.Path{Name: abs, User: user}, err
}

// resolve makes a name absolute, beginning at a user's home.
func resolve(home, name string) (string, error) {
	switch {
	case name == "" || name == "~":
		return home, nil
	case strings.HasPrefix(name, "~/"):
		return path.Join(home, name[2:]), nil
	case strings.HasPrefix(name, "~"):
		return "", brig.Errorf(brig.InvalidArgument, "the home of another user cannot be looked up: '%s'", clip(name))
	case strings.HasPrefix(name, "/"):
		return path.Clean(name), nil
	}
	return path.Join(home, name), nil
}

// clip keeps what a caller gave from filling a message.
func clip(s string) string { return brig.Clip(s, 200) }
