package image

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// maxUser is the highest user that a configuration may mean, which is nobody. The
// agent's own may be nothing else's.
const maxUser = 65534

// settle holds what a configuration says of the image's files against them, and
// notes what of it is not used. It comes after finish.
func (f *finisher) settle(c *brig.ImageConfig, user string) (notes []string, err error) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if dir := c.WorkingDir; dir != "" && dir != "/" {
		// A link that leads out of the image leads nowhere.
		if fi, err := f.root.Stat(strings.TrimPrefix(path.Clean(dir), "/")); err != nil || !fi.IsDir() {
			note("working directory %s is not used: the image does not have it", quote(dir))
			c.WorkingDir = ""
		}
	}
	uid, gid, err := f.whois(user)
	switch {
	case err != nil:
		return nil, err
	case user == "":
	case uid == 0:
		c.User = "root"
	case uid == userID:
		c.User = "user"
	case uid < 0:
		c.User = "user"
		note("user %s is not used: it is none of the image's, or one that nobody may be; everything runs as user %d", quote(user), userID)
	default:
		c.User, c.Account = "user", fmt.Sprintf("%d:%d", uid, gid)
		note("the image's entrypoint runs as its user %s (%s), other commands as user %d", quote(user), c.Account, userID)
	}
	return notes, nil
}

// whois finds who a configuration means by "name:group", either of which may be
// a number. The user is -1 when it cannot be used.
func (f *finisher) whois(user string) (uid, gid int, err error) {
	name, group, grouped := strings.Cut(user, ":")
	passwd, err := f.readAccounts("etc/passwd")
	if err != nil {
		return -1, 0, err
	}
	uid, gid = inAccounts(passwd, name)
	if gid < 0 { // nobody is in root's group because of a number
		gid = uid
	}
	if grouped && group != "" {
		groups, err := f.readAccounts("etc/group")
		if err != nil {
			return -1, 0, err
		}
		gid, _ = inAccounts(groups, group)
	}
	if uid < 0 || uid > maxUser || uid == wire.AgentID || gid < 0 || gid > maxUser || gid == wire.AgentID {
		return -1, 0, nil
	}
	return uid, gid, nil
}

// inAccounts finds a name or a number in a file of accounts: its own number, and
// that in the field behind; -1 for what is not there. A number need not be.
func inAccounts(file []byte, name string) (id, next int) {
	want, err := strconv.ParseUint(name, 10, 31)
	numeric := err == nil
	for line := range bytes.Lines(file) {
		fields := strings.Split(strings.TrimSuffix(string(line), "\n"), ":")
		if len(fields) < 3 || fields[0] == "" {
			continue
		}
		n, err := strconv.ParseUint(fields[2], 10, 31)
		if err != nil || fields[0] != name && !(numeric && n == want) {
			continue
		}
		next = -1
		if len(fields) > 3 {
			if g, err := strconv.ParseUint(fields[3], 10, 31); err == nil {
				next = int(g)
			}
		}
		return int(n), next
	}
	if numeric {
		return int(want), -1
	}
	return -1, -1
}
