package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// destination says which server carries out commands, and with which key it is
// asked. Without a URL there is no server.
func (c *cli) destination(dir string) (client.Options, error) {
	o := client.Options{URL: c.url, Key: cmp.Or(c.key, os.Getenv("BRIG_API_KEY")), InsecureHTTP: c.insecureHTTP}
	if o.URL != "" && o.Key != "" {
		return o, nil // the user has said both
	}
	served := servedBy(dir)
	if o.URL == "" {
		o.URL = served
	}
	if o.URL == "" || o.Key != "" {
		return o, nil
	}
	if _, err := client.New(o); err != nil {
		return o, err // what is no URL is told as that
	}
	// The folder's key opens all of its server, so that nobody else may get it.
	at, ours := announcedAs(o.URL, served)
	if !ours {
		return o, noKeyFor(o.URL, served)
	}
	o.URL, o.Key = at, keyOf(dir)
	return o, nil
}

// noKeyFor is the error of a server that is not the data folder's, where the
// user has given no key.
func noKeyFor(asked, served string) error {
	hint := "give the key of that server with --key or BRIG_API_KEY"
	if served != "" {
		hint += "; the data folder's server is at " + served
	}
	return brig.Errorf(brig.Unauthenticated, "there is no key for %s: the data folder's key is for the data folder's server alone", asked).WithHint("%s", hint)
}

// announcedAs reports whether a URL is the one that the folder's server has
// announced, perhaps in other words, and returns it as it was announced: where
// localhost leads to is not said, and another program may listen there.
func announcedAs(asked, announced string) (string, bool) {
	a, err := url.Parse(asked)
	if err != nil || a.User != nil {
		return "", false
	}
	b, err := url.Parse(announced)
	if err != nil || a.Scheme != b.Scheme || port(a) != port(b) {
		return "", false
	}
	at, err := netip.ParseAddr(b.Hostname())
	if err != nil {
		return "", false
	}
	if a.Hostname() != "localhost" || !at.IsLoopback() {
		if addr, err := netip.ParseAddr(a.Hostname()); err != nil || addr.Unmap() != at.Unmap() {
			return "", false
		}
	}
	a.Scheme, a.Host = b.Scheme, b.Host
	return a.String(), true
}

// port returns the port of a URL, the scheme's own if it has none.
func port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// keyOf returns the key that a server left in its data folder, empty if there
// is none to be read.
func keyOf(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// announcement is what a server leaves in its data folder.
type announcement struct {
	URL string `json:"url"`
	PID int    `json:"pid"`
}

// servedBy returns the URL of the server that owns the data folder, if one
// does.
func servedBy(dir string) string {
	if !owned(dir) {
		return "" // whoever listens where an earlier server did is somebody else
	}
	b, err := os.ReadFile(filepath.Join(dir, serverFile))
	if err != nil {
		return ""
	}
	var a announcement
	if json.Unmarshal(b, &a) != nil {
		return ""
	}
	return a.URL
}

// owned reports whether somebody has the data folder. Those who ask share the
// lock: else each would take another one that asks for an owner.
func owned(dir string) bool {
	f, err := os.Open(filepath.Join(dir, ownerFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
