package kernels

import "time"

// SendWithin changes the time in which clients must read a message.
func (d *API) SendWithin(most time.Duration) { d.sendTimeout = most }
