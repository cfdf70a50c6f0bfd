package brig

import "context"

// Tenants, routings and providers have a revision that every change increases.
// The engine rejects a change that is based on an older revision, because it
// would revert the changes in between.

// revField is the field in the errors of CheckRev.
const revField = "rev"

// CheckRev returns FailedPrecondition if the revision base, on which a change is
// based, is not the current one. Base 0 skips the check.
func CheckRev(base, current int64) error {
	if base == 0 || base == current {
		return nil
	}
	e := Errorf(FailedPrecondition, "it was changed after it had been read")
	e.Field = revField
	return e.WithHint("read it again, and repeat the change")
}

// IsConflict reports whether err is an error of CheckRev.
func IsConflict(err error) bool {
	return KindOf(err) == FailedPrecondition && AsError(err).Field == revField
}

// Reapply calls change, which reads, modifies and writes a value, until
// CheckRev accepts it. The loop makes progress: each conflict means that
// another caller's change succeeded.
func Reapply(ctx context.Context, change func() error) error {
	for {
		err := change()
		if !IsConflict(err) || ctx.Err() != nil {
			return err
		}
	}
}
