// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/viplab/viplab/suite/spec"
)

// Shown is what a program prints of something that a proxier is to have made. A program that runs and fails does so for
// want of it: that is the proxier's failure, not the harness's.
func Shown(ctx context.Context, w spec.World, host string, argv ...string) (string, error) {
	text, err := w.Run(ctx, host, argv...)
	var exit *exec.ExitError
	var fault *spec.HarnessError
	if errors.As(err, &exit) && errors.As(err, &fault) {
		return "", fmt.Errorf("nothing to show: %s", fault.Err)
	}
	return text, err
}
