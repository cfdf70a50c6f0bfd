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

// resolveDestination returns the client options for the server to use. If the user has specified
// both a URL and a key, the client uses them. Otherwise, it connects through the socket of the data
// folder, with a key only if the user has specified one. The URL is empty if there is no server.
func (c *cli) resolveDestination(dir string) (client.Options, error) {
	o := client.Options{URL: c.url, Key: cmp.Or(c.key, os.Getenv("BRIG_API_KEY")), InsecureHTTP: c.insecureHTTP}
	if o.URL != "" && o.Key != "" {
		return o, nil // the user has specified both
	}
	served := serverOf(dir)
	if served != "" {
		// A user who can write to the directory can make commands use another server.
		if err := checkFolder(dir, os.Geteuid()); err != nil {
			return o, err
		}
	}
	if o.URL == "" && served == "" {
		return o, nil
	}
	// Never send a key to the announced address: another process may listen there, for example
	// after the server has ended.
	through := socketOptions(dir)
	if o.URL == "" {
		through.Key = o.Key
		return through, nil
	}
	if path, ours := matchAnnouncedURL(o.URL, served); ours {
		through.URL += path
		return through, nil
	}
	if _, err := client.New(o); err != nil {
		return o, err // report an invalid URL as such
	}
	return o, missingKeyError(o.URL, served)
}

// missingKeyError returns the error for a URL that is not the data folder's server when the user
// has specified no key.
func missingKeyError(requested, served string) error {
	hint := "give the key of that server with --key or BRIG_API_KEY"
	if served != "" {
		hint += "; the data folder's server is at " + served
	}
	return brig.Errorf(brig.Unauthenticated, "no API key for %s: commands without a key use only the data folder's server", requested).WithHint("%s", hint)
}

// matchAnnouncedURL reports whether a URL is equivalent to the URL that the data folder's server
// has announced, and returns the path of the URL.
func matchAnnouncedURL(requested, announced string) (path string, ok bool) {
	a, err := url.Parse(requested)
	if err != nil || a.User != nil {
		return "", false
	}
	b, err := url.Parse(announced)
	if err != nil || a.Scheme != b.Scheme || port(a) != port(b) {
		return "", false
	}
	announcedIP, err := netip.ParseAddr(b.Hostname())
	if err != nil {
		return "", false
	}
	if a.Hostname() != "localhost" || !announcedIP.IsLoopback() {
		if addr, err := netip.ParseAddr(a.Hostname()); err != nil || addr.Unmap() != announcedIP.Unmap() {
			return "", false
		}
	}
	return a.EscapedPath(), true
}

// port returns the port of a URL, or the default port of its scheme.
func port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// readKey returns the key that a server has written to its data folder. It returns an empty string
// if there is no readable key.
func readKey(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// announcement is the content of serverFile.
type announcement struct {
	URL string `json:"url"`
	PID int    `json:"pid"`
}

// serverOf returns the URL of the server that owns the data folder. The URL is empty if there is no
// such server.
func serverOf(dir string) string { return readAnnouncement(dir).URL }

// readAnnouncement returns the announcement of the server that owns the data folder. The
// announcement is zero if there is no such server.
func readAnnouncement(dir string) (a announcement) {
	if !isLocked(dir) {
		return a // another program may listen at the address of an earlier server
	}
	b, err := os.ReadFile(filepath.Join(dir, serverFile))
	if err != nil || json.Unmarshal(b, &a) != nil {
		return announcement{}
	}
	return a
}

// isLocked reports whether a process owns the data folder. It tries to take a shared lock, so that
// concurrent callers do not mistake each other for the owner.
func isLocked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, ownerFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
