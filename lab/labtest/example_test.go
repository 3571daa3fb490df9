// SPDX-License-Identifier: Apache-2.0

package labtest_test

import (
	"testing"

	"github.com/onsi/gomega"

	"github.com/viplab/viplab/lab/labtest"
	"github.com/viplab/viplab/lab/match"
	"github.com/viplab/viplab/proxiers/iptables"
	"github.com/viplab/viplab/suite/spec"
)

// A test package needs a TestMain, so that it also runs without root:
//
//	func TestMain(m *testing.M) { labtest.Main(m) }
func ExampleNew() {
	_ = func(t *testing.T) {
		l := labtest.New(t, labtest.Options{Proxier: iptables.New(iptables.NFT)})
		l.ApplyFile("testdata/web.yaml")
		o := l.Probe("shell", spec.ClusterIPOf("web", 80))
		gomega.NewWithT(t).Expect(o.Answer).To(match.Replied())
	}
}
