package envd

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// call holds the data of a request that its response depends on.
type call struct {
	box Sandbox
	// user is the requested user inside the sandbox. If it is empty, the
	// default user applies.
	user string
	// timeout is the longest duration of a stream. 0 means unlimited.
	timeout time.Duration
	// every is the interval of keepalives on a silent stream.
	every time.Duration
	out   *writer
	body  *countedBody // nil if the body is not counted
	found *foundAccounts
}

type callKey struct{}

// streams are the methods whose Connect-Timeout-Ms header this package applies.
// If the timeout were the deadline of the request, it would cut off the end of
// the response.
var streams = [...]string{"/process.Process/Start", "/process.Process/Connect", "/filesystem.Filesystem/WatchDir"}

const timeoutHeader = "Connect-Timeout-Ms"

// withCall returns a copy of r whose context carries its call.
func withCall(r *http.Request, s Sandbox, found *foundAccounts, out *writer) *http.Request {
	c := &call{box: s, found: found, every: keepalive(r.Header.Get("Keepalive-Ping-Interval")), out: out}
	if c.user, _, _ = r.BasicAuth(); s.Token != "" && r.Header.Get("X-Access-Token") == "" {
		c.user = "" // a signature is valid only for the user in the signed URL
	}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	for _, p := range streams {
		if r.URL.Path != p {
			continue
		}
		// An invalid timeout remains in the header, so that the library rejects
		// it.
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

// timeout parses a Connect-Timeout-Ms header of at most ten digits.
func timeout(s string) (time.Duration, bool) {
	ms, err := strconv.ParseUint(s, 10, 63)
	return time.Duration(ms) * time.Millisecond, err == nil && len(s) <= 10
}

// keepalive parses a Keepalive-Ping-Interval header, in seconds.
func keepalive(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= 24*3600 {
		return time.Duration(n) * time.Second
	}
	return 90 * time.Second
}

// resolveUser returns the account of the request, or an error if the sandbox has no such user.
func (c *call) resolveUser(ctx context.Context) (account, error) {
	name := cmp.Or(c.user, c.box.User, "user")
	switch name {
	case "user":
		return account{user: name, home: "/home/user"}, nil
	case "root":
		return account{user: name, home: "/root"}, nil
	}
	_, _, isIDs := wire.ParseAccount(name)
	defaultIDs := isIDs && c.user == "" // only the sandbox's default user can consist of IDs
	if c.found != nil && (defaultIDs || !strings.ContainsAny(name, ":\n\x00")) {
		a, err := c.found.find(ctx, name)
		if err != nil || a.user != "" {
			return a, err
		}
	}
	if defaultIDs {
		return account{user: name, home: "/"}, nil
	}
	return account{}, brig.Errorf(brig.Unauthenticated, "invalid username: '%s'", truncate(name)).Because(errUnknownUser)
}

// errUnknownUser is the cause of the error for a user that the sandbox does not have.
var errUnknownUser = errors.New("the sandbox does not have the user")

// path returns the absolute path of a name in the request.
func (c *call) path(ctx context.Context, name string) (brig.Path, error) {
	a, err := c.resolveUser(ctx)
	if err != nil {
		return brig.Path{}, err
	}
	abs, err := resolve(a.home, name)
	return brig.Path{Name: abs, User: a.user}, err
}

// resolve makes a name absolute, relative to a user's home directory.
func resolve(home, name string) (string, error) {
	switch {
	case name == "" || name == "~":
		return home, nil
	case strings.HasPrefix(name, "~/"):
		return path.Join(home, name[2:]), nil
	case strings.HasPrefix(name, "~"):
		return "", brig.Errorf(brig.InvalidArgument, "the home of another user cannot be looked up: '%s'", truncate(name))
	case strings.HasPrefix(name, "/"):
		return path.Clean(name), nil
	}
	return path.Join(home, name), nil
}

// truncate shortens a value of the caller for use in a message.
func truncate(s string) string { return brig.Clip(s, 200) }
