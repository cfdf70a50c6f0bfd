package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// destination says which server carries out commands, and with which key it is
// asked. Without a URL there is no server.
func (c *cli) destination(dir string) client.Options {
	o := client.Options{URL: c.url}
	if o.URL == "" {
		o.URL = servedBy(dir)
	}
	if o.URL != "" {
		o.Key = c.apiKey(dir)
	}
	return o
}

// apiKey finds the key: the flag, the environment, or the admin key that a
// server left in the data folder.
func (c *cli) apiKey(dir string) string {
	if c.key != "" {
		return c.key
	}
	if k := os.Getenv("BRIG_API_KEY"); k != "" {
		return k
	}
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
	b, err := os.ReadFile(filepath.Join(dir, serverFile))
	if err != nil {
		return ""
	}
	var a announcement
	if json.Unmarshal(b, &a) != nil {
		return ""
	}
	lock, err := own(dir)
	if err != nil {
		if brig.KindOf(err) == brig.FailedPrecondition {
			return a.URL
		}
		return ""
	}
	lock.Close()
	return ""
}
