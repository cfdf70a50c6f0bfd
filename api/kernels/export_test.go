package kernels

import "time"

// SendWithin has clients read each message within a time of the test's own.
func (d *Door) SendWithin(most time.Duration) { d.sendTimeout = most }
