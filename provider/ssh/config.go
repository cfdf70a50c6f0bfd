// Package ssh runs sandboxes as plain processes on a remote host. It copies
// the guest agent, which supervises the processes, to the host, and uses a
// single SSH connection for the whole protocol.
//
// Only namespaces separate the sandboxes from each other. They are isolated
// from the server because they run on another host.
package ssh

import (
	"context"
	"fmt"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/brig-run/brig"
)

// Name is the driver's name.
const Name = "ssh"

// Config is the administrator's configuration.
type Config struct {
	Host        string `json:"host" title:"Host" doc:"The machine's name or address." form:"required,destination"`
	Port        int    `json:"port" title:"Port" min:"1" max:"65535" form:"required,destination"`
	Username    string `json:"username" title:"Account" form:"required"`
	Password    string `json:"password" title:"Password" form:"secret"`
	PrivateKey  string `json:"private_key" title:"Private key" doc:"As ssh-keygen writes it." form:"secret,multiline"`
	Passphrase  string `json:"passphrase" title:"Passphrase of the key" form:"secret"`
	KnownHosts  string `json:"known_hosts" title:"Known hosts" doc:"The machine's host keys, in the format of known_hosts or ssh-keyscan. Brig connects only with these or a fingerprint." form:"multiline,destination"`
	Fingerprint string `json:"fingerprint" title:"Fingerprint" doc:"Of the machine's key, instead of known hosts." placeholder:"SHA256:…" form:"destination"`
	PythonBin   string `json:"python_bin" title:"Python" doc:"The interpreter of Python programs there."`
	NodeBin     string `json:"node_bin" title:"Node.js" doc:"The interpreter of JavaScript programs there."`
	WorkDir     string `json:"work_dir" title:"Folder" doc:"Where the agent and its sandboxes have a folder there."`
	Timeout     int    `json:"timeout" title:"Timeout" doc:"Seconds until the machine has to answer." min:"1" max:"600"`
}

// Validate implements brig.ConfigRules.
func (c *Config) Validate() (invalid []brig.FieldError) {
	say := func(field, format string, args ...any) {
		invalid = append(invalid, brig.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	for field, v := range map[string]string{"host": c.Host, "username": c.Username, "python_bin": c.PythonBin, "node_bin": c.NodeBin} {
		if v == "" {
			say(field, "it is required")
		} else if strings.ContainsAny(v, "\x00\n'") {
			say(field, "it has a character that no such name has")
		}
	}
	if c.Password == "" && c.PrivateKey == "" {
		say("private_key", "a password or a private key is required")
	}
	if c.PrivateKey != "" {
		if _, err := c.signer(); err != nil {
			say("private_key", "it is no key that can be read, or its passphrase is another")
		}
	}
	switch {
	case c.KnownHosts == "" && c.Fingerprint == "":
		say("known_hosts", "the machine's key has to be known: give known_hosts (ssh-keyscan writes it) or a fingerprint")
	case c.Fingerprint != "" && !strings.HasPrefix(c.Fingerprint, "SHA256:"):
		say("fingerprint", "it has to begin with SHA256:")
	}
	if !path.IsAbs(c.WorkDir) || strings.ContainsAny(c.WorkDir, "\x00\n'") {
		say("work_dir", "it is not an absolute path")
	}
	return invalid
}

func (c *Config) signer() (ssh.Signer, error) {
	if c.Passphrase != "" {
		return ssh.ParsePrivateKeyWithPassphrase([]byte(c.PrivateKey), []byte(c.Passphrase))
	}
	return ssh.ParsePrivateKey([]byte(c.PrivateKey))
}

// Driver returns the driver of this kind of provider.
func Driver() brig.Driver {
	return brig.NewDriver(brig.Driver{
		Name: Name, Title: "SSH", Doc: "Plain processes on a machine that is reached by SSH. They share that machine with each other and with its own programs.",
		Tags:      []string{"remote", "ssh", "custom-runtime"},
		Languages: []brig.Language{"python", "javascript", "typescript", "bash"},
	}, Config{Port: 22, PythonBin: "python3", NodeBin: "node", WorkDir: "/tmp", Timeout: 30}, func(ctx context.Context, env brig.ProviderEnv, c *Config) (brig.Provider, error) {
		return openProvider(ctx, env, c)
	})
}
