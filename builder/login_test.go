package builder

import (
	"os"
	"os/exec"
	"os/user"
	"strings"
	"testing"
)

// A command whose user is given by IDs has the name and the home of the account. A variable that the build
// has set, and a user without an account, remain.
func TestLoginFindsAccount(t *testing.T) {
	daemon, err := user.LookupId("1")
	if err != nil {
		t.Skip("the machine has no account with the ID 1")
	}
	for _, c := range []struct{ user, home, want string }{
		{"1", "/home/user", daemon.Username + " " + daemon.Username + " " + daemon.HomeDir},
		{"1", "/srv", daemon.Username + " " + daemon.Username + " /srv"},
		{"64123", "/home/user", "64123 64123 /home/user"},
		{"user", "/home/user", "user user /home/user"},
		{"1x", "/home/user", "1x 1x /home/user"},
		{"", "/home/user", "  /home/user"},
	} {
		argv := login(`echo "$USER $LOGNAME $HOME $brig_name"`)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "USER=" + c.user, "LOGNAME=" + c.user, "HOME=" + c.home}
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSuffix(string(out), " \n"); got != c.want || err != nil {
			t.Errorf("as %q with the home %s: %q, %v, want %q", c.user, c.home, got, err, c.want)
		}
	}
}
