package policycalico

import (
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/internal/proxiertest"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestTraffic(t *testing.T) { proxiertest.PolicyTraffic(t, New(), lab.Routed) }
