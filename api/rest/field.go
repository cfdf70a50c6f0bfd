package rest

import (
	"errors"
	"strings"

	"github.com/brig-run/brig"
)

// fields gives the request's own name for what the nouns call otherwise. The
// main program's fields stand beside the sandbox's in a request.
var fields = map[string]string{
	"timeout": "timeout_ms", "ttl": "ttl_ms", "grace": "grace_ms",
	"argv": "command", "dir": "cwd",
	"command.argv": "command", "command.shell": "shell", "command.env": "command_env",
	"command.dir": "cwd", "command.user": "user", "command.timeout": "timeout_ms",
}

// inRequestTerms returns err with its field named as the request names it.
func inRequestTerms(err error) error {
	e, ok := errors.AsType[*brig.Error](err)
	if !ok || e.Field == "" || e.Kind == brig.InvalidConfig { // fields of a configuration have their own names
		return err
	}
	for end := len(e.Field); end > 0; end = strings.LastIndexAny(e.Field[:end], ".[") {
		if name, ok := fields[e.Field[:end]]; ok {
			renamed := *e
			renamed.Field = name + e.Field[end:]
			return &renamed
		}
	}
	return err
}
