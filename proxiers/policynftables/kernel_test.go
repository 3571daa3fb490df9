// SPDX-License-Identifier: Apache-2.0

package policynftables

import (
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestTraffic(t *testing.T) { proxiertest.PolicyTraffic(t, New(), lab.Bridge, lab.Routed) }
