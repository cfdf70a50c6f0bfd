package envd

import (
	"strings"
	"testing"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
user:x:1000:1000::/home/user:/bin/bash
# a comment
short:x:5
alice:x:1001:1002:Alice:/home/alice:/bin/zsh
toor:x:0:0::/root2:/bin/sh
agent:x:64999:64999::/:/bin/sh
group:x:1003:64999::/:/bin/sh
large:x:70000:70000::/:/bin/sh
odd:x:-1:0::/:/bin/sh
homeless:x:1004:0::../etc:nologin
`

func TestParseAccountOfPasswd(t *testing.T) {
	for name, want := range map[string]struct{ user, home, shell string }{
		"alice":     {"1001:1002", "/home/alice", "/bin/zsh"},
		"toor":      {"root", "/root2", "/bin/sh"},
		"homeless":  {"1004:0", "/", ""},
		"1001:1002": {"1001:1002", "/home/alice", "/bin/zsh"},
		"1001:1":    {}, "agent": {}, "group": {}, "large": {}, "odd": {}, "short": {}, "bob": {}, "": {}, "# a comment": {},
	} {
		a := parseAccount(strings.NewReader(passwd), name)
		if a.user != want.user || a.home != want.home || a.env["SHELL"] != want.shell {
			t.Errorf("%s: %+v, want %+v", name, a, want)
		}
		if a.user != "" && (a.env["HOME"] != a.home || a.env["USER"] != strings.Replace(name, "1001:1002", "alice", 1) || a.env["LOGNAME"] != a.env["USER"]) {
			t.Errorf("%s: environment %v", name, a.env)
		}
	}
	if env := parseAccount(strings.NewReader(passwd), "alice").withAccount(map[string]string{"HOME": "/x", "A": "b"}, map[string]string{"SHELL": "/bin/fish"}); env["HOME"] != "/x" || env["USER"] != "alice" || env["A"] != "b" || env["SHELL"] != "" {
		t.Errorf("environment %v", env)
	}
}

func FuzzPasswd(f *testing.F) {
	f.Add(passwd, "alice")
	f.Add("a:b:1:1:c:d:e", "a")
	f.Fuzz(func(t *testing.T, file, name string) {
		a := parseAccount(strings.NewReader(file), name)
		if a.user != "" && (a.home == "" || a.home[0] != '/' || a.user != "root" && !strings.Contains(a.user, ":")) {
			t.Errorf("%+v", a)
		}
	})
}
