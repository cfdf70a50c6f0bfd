package ssh

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/provider/providertest"
	"github.com/brig-run/brig/provider/ssh/sshtest"
)

func TestConformance(t *testing.T) {
	s := sshtest.Start(t)
	agent, dir := providertest.Agent(t), t.TempDir()
	p := openSSH(t, agent, dir, configOf(s))
	t.Cleanup(func() { endSupervisor(t, openSSH(t, agent, dir, configOf(s))) })
	img, err := p.Image(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	const noFreezer = "the kernel's freezer needs a cgroup of the sandbox's own"
	providertest.Run(t, providertest.Harness{
		Provider: p, Image: img.Digest, Real: true,
		Lacks: map[string]string{
			"Freeze": noFreezer, "UplinkFrozen": noFreezer,
			"FilesFull": "the layer of files is a folder of the machine's disk",
		},
		Next: func(t *testing.T) brig.Provider { return openSSH(t, agent, dir, configOf(s)) },
	})
}

// TestUnknownHostKeyIsRejected verifies that the provider sends no credentials to a host with
// an unknown host key.
func TestUnknownHostKeyIsRejected(t *testing.T) {
	s := sshtest.Start(t)
	agent := providertest.Agent(t)
	_, other := sshtest.Key(t, "")
	check := func(change func(*Config)) error {
		c := configOf(s)
		change(c)
		p, err := openProvider(t.Context(), brig.ProviderEnv{Dir: t.TempDir(), Agent: agent, Called: func(brig.Call) {}}, c)
		if err != nil {
			return err
		}
		defer p.Close()
		err = p.Check(t.Context())
		if err == nil {
			endSupervisor(t, p)
		}
		return err
	}
	for what, change := range map[string]func(*Config){
		"known":       func(*Config) {}, // the control
		"fingerprint": func(c *Config) { c.KnownHosts, c.Fingerprint = "", ssh.FingerprintSHA256(s.HostKey) },
		"one of several lines": func(c *Config) {
			c.KnownHosts = "other.example " + string(ssh.MarshalAuthorizedKey(other)) + c.KnownHosts
		},
		"password": func(c *Config) { c.PrivateKey, c.Password = "", sshtest.Password },
	} {
		if err := check(change); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, c := range map[string]struct {
		kind   brig.Kind
		field  string
		change func(*Config)
	}{
		"another key":         {brig.ConnectionFailed, "known_hosts", func(c *Config) { c.KnownHosts = s.Line(other) }},
		"another machine's":   {brig.ConnectionFailed, "known_hosts", func(c *Config) { c.KnownHosts = "other.example " + string(ssh.MarshalAuthorizedKey(s.HostKey)) }},
		"a revoked key":       {brig.ConnectionFailed, "known_hosts", func(c *Config) { c.KnownHosts = "@revoked " + c.KnownHosts }},
		"no known hosts":      {brig.ConnectionFailed, "known_hosts", func(c *Config) { c.KnownHosts = "what is this" }},
		"another fingerprint": {brig.ConnectionFailed, "fingerprint", func(c *Config) { c.KnownHosts, c.Fingerprint = "", ssh.FingerprintSHA256(other) }},
		"nothing known":       {brig.InvalidConfig, "known_hosts", func(c *Config) { c.KnownHosts = "" }},
		"a wrong password":    {brig.InvalidConfig, "password", func(c *Config) { c.PrivateKey, c.Password = "", "wrong" }},
		"a stranger's key":    {brig.InvalidConfig, "private_key", func(c *Config) { c.PrivateKey, _ = sshtest.Key(t, "") }},
		"no such account":     {brig.InvalidConfig, "private_key", func(c *Config) { c.Username = "nobody-there" }},
	} {
		err := brig.AsError(check(c.change))
		if err == nil || err.Kind != c.kind || err.Field != c.field || err.Hint == "" {
			t.Errorf("%s: %+v", what, err)
		}
	}
}

// TestDeletedAgentIsCopiedAgain verifies that the provider copies the agent again if it was
// deleted.
func TestDeletedAgentIsCopiedAgain(t *testing.T) {
	s := sshtest.Start(t)
	p := openSSH(t, providertest.Agent(t), t.TempDir(), configOf(s))
	t.Cleanup(func() { endSupervisor(t, p) })
	if err := p.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent, err := p.copyAgent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Disconnect(t)
	if err := os.Remove(agent); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := p.Check(t.Context())
		if _, statErr := os.Stat(agent); err == nil && statErr == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it is not there again: %v", err)
		}
	}
}

// TestUnresponsiveHost verifies that a host that does not respond delays the
// caller by at most the configured timeout.
func TestUnresponsiveHost(t *testing.T) {
	agent := providertest.Agent(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // accepts connections and never responds
	for what, port := range map[string]int{"silent": silent.Addr().(*net.TCPAddr).Port, "closed": testenv.ClosedPort(t)} {
		_, k := sshtest.Key(t, "")
		s := &sshtest.Server{Port: port, HostKey: k}
		s.ClientKey, _ = sshtest.Key(t, "")
		c := configOf(s)
		c.Timeout = 1
		p := openSSH(t, agent, t.TempDir(), c)
		begin := time.Now()
		if err := p.Check(t.Context()); brig.KindOf(err) != brig.ConnectionFailed || time.Since(begin) > 20*time.Second {
			t.Errorf("%s: %v after %v", what, err, time.Since(begin))
		}
		begin = time.Now()
		_, err := p.Create(t.Context(), "x", brig.Spec{}, time.Now().Add(time.Minute))
		if brig.KindOf(err) != brig.ConnectionFailed || time.Since(begin) > 20*time.Second {
			t.Errorf("%s: create: %v after %v", what, err, time.Since(begin))
		}
	}
}

// TestConnectionLost verifies that a running command ends if the connection is
// lost, and that its processes are cleaned up before the caller receives the
// error.
func TestConnectionLost(t *testing.T) {
	s := sshtest.Start(t)
	p := openSSH(t, providertest.Agent(t), t.TempDir(), configOf(s))
	t.Cleanup(func() { endSupervisor(t, p) })
	sandbox := func(id brig.ID) brig.Instance {
		in, err := p.Create(t.Context(), id, brig.Spec{Name: "x", Limits: brig.DefaultLimitRange().Default}, time.Now().Add(5*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	exec := func(in brig.Instance, then func()) (*brig.Result, string, error) {
		var out bytes.Buffer
		res, err := in.Exec(t.Context(), "e", brig.Command{Shell: "sleep 3; echo done", Timeout: 30 * time.Second}, brig.IO{
			Stdout: &out, Stderr: &out, Started: func(string) { time.AfterFunc(200*time.Millisecond, then) },
		})
		return res, out.String(), err
	}
	control := sandbox("control")
	if res, out, err := exec(control, func() {}); err != nil || res.ExitCode != 0 || out != "done\n" {
		t.Fatalf("undisturbed: %+v, %q, %v", res, out, err)
	}
	in := sandbox("lost")
	begin := time.Now()
	_, out, err := exec(in, func() { s.Disconnect(t) })
	if kind := brig.KindOf(err); kind != brig.ConnectionFailed || out != "" || time.Since(begin) > 20*time.Second {
		t.Errorf("after %v: %q, %v", time.Since(begin), out, err)
	}
	// Both instances can be used over a new connection.
	for _, in := range []brig.Instance{control, in} {
		if res, out, err := exec(&renamed{in}, func() {}); err != nil || res.ExitCode != 0 || out != "done\n" {
			t.Errorf("afterwards: %+v, %q, %v", res, out, err)
		}
	}
	for _, in := range []brig.Instance{control, in} {
		if err := in.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// renamed runs commands under another ID.
type renamed struct{ brig.Instance }

func (r *renamed) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	return r.Instance.Exec(ctx, id+"2", cmd, sio)
}

func TestConfigRules(t *testing.T) {
	private, public := sshtest.Key(t, "secret")
	good := Config{
		Host: "h", Port: 22, Username: "u", PrivateKey: private, Passphrase: "secret", KnownHosts: "h " + string(ssh.MarshalAuthorizedKey(public)),
		PythonBin: "python3", NodeBin: "node", WorkDir: "/tmp", Timeout: 30,
	}
	if invalid := good.Validate(); len(invalid) != 0 {
		t.Errorf("what is right: %+v", invalid)
	}
	for field, change := range map[string]func(*Config){
		"host":        func(c *Config) { c.Host = "" },
		"username":    func(c *Config) { c.Username = "a'b" },
		"python_bin":  func(c *Config) { c.PythonBin = "" },
		"private_key": func(c *Config) { c.Passphrase = "another" },
		"known_hosts": func(c *Config) { c.KnownHosts = "" },
		"fingerprint": func(c *Config) { c.Fingerprint = "aa:bb" },
		"work_dir":    func(c *Config) { c.WorkDir = "relative" },
	} {
		c := good
		change(&c)
		if invalid := c.Validate(); len(invalid) != 1 || invalid[0].Field != field || strings.Contains(invalid[0].Message, private) {
			t.Errorf("%s: %+v", field, invalid)
		}
	}
}

// configOf returns a configuration that the server accepts.
func configOf(s *sshtest.Server) *Config {
	return &Config{
		Host: "127.0.0.1", Port: s.Port, Username: "root", PrivateKey: s.ClientKey, KnownHosts: s.Line(s.HostKey),
		PythonBin: "python3", NodeBin: "node", WorkDir: os.TempDir(), Timeout: 30,
	}
}

// openSSH opens a provider. The first test that uses a directory removes the
// provider's files on the host when the test ends.
func openSSH(t *testing.T, agent, dir string, c *Config) *Provider {
	t.Helper()
	p, err := openProvider(t.Context(), brig.ProviderEnv{ID: Name, Dir: dir, Agent: agent, Called: func(brig.Call) {}}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// endSupervisor ends the supervisor and removes its files.
func endSupervisor(t *testing.T, p *Provider) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	agent, err := p.copyAgent(ctx)
	if err == nil {
		err = p.remoteHost(supervisorDir(agent)).Quit(ctx)
	}
	if err == nil {
		_, err = p.dialer.run(ctx, "rm -rf "+quote(p.dir), nil)
	}
	if err != nil {
		t.Errorf("tidy up: %v", err)
	}
}
