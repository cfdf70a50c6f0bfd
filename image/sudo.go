package image

import "fmt"

// sudoFile is the path of the command sudo in the images of Debian packages.
const sudoFile = "usr/local/bin/sudo"

// sudoScript takes the place of sudo, which E2B's default template has. Programs in a sandbox cannot
// gain privileges, so it only says how to run a command as root. If root calls it, it runs the
// command without any change.
const sudoScript = `#!/bin/sh
if [ "$(id -u)" = 0 ]; then
	while :; do
		case "$1" in
		-E | -H | -n | -S) shift ;;
		--) shift && break ;;
		*) break ;;
		esac
	done
	case "$1" in
	"" | -*) ;;
	*) exec env -- "$@" ;;
	esac
	echo 'sudo: this image has no sudo. As root, only "sudo COMMAND" works' >&2
	exit 1
fi
echo 'sudo: programs in a sandbox cannot gain privileges. Run the command as root instead: with user="root" in the SDK' >&2
exit 1
`

// explainSudo writes sudoScript.
func explainSudo(f *finisher) error {
	if exists(f.root, "usr/bin/sudo") { // as root, it does more than the script
		return nil
	}
	if err := f.root.MkdirAll("usr/local/bin", 0o755); err != nil {
		return fmt.Errorf("make usr/local/bin: %w", err)
	}
	if err := f.write(sudoFile, []byte(sudoScript)); err != nil {
		return err
	}
	if err := f.root.Chmod(sudoFile, 0o755); err != nil {
		return fmt.Errorf("make %s executable: %w", sudoFile, err)
	}
	return nil
}
