// SPDX-License-Identifier: Apache-2.0

package labtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/onsi/gomega"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/labtest"
	"github.com/viplab/viplab/lab/match"
	"github.com/viplab/viplab/proxiers/iptables"
	"github.com/viplab/viplab/proxiers/nftables"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { labtest.Main(m) }

const web = `
apiVersion: v1
kind: Pod
metadata: {name: a1, labels: {app: web}}
spec:
  nodeName: n2
  containers: [{name: web, image: echo, ports: [{containerPort: 8080}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  nodeName: n1
  containers: [{name: shell, image: echo}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// A Service is of no use without a proxier, works with one and with its successor, and ends when it is deleted.
func TestAService(t *testing.T) {
	g := gomega.NewWithT(t)
	l := labtest.New(t, labtest.Options{Families: []lab.Family{lab.V4}})
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(web), 0o644); err != nil {
		t.Fatal(err)
	}
	l.ApplyFile(file)
	g.Expect(l.Probe("shell", spec.ClusterIPOf("web", 80)).Answer).NotTo(match.Replied())

	vip := l.Resolve(spec.ClusterIPOf("web", 80), lab.V4)
	recording := l.Capture("n1")
	for _, p := range []spec.Proxier{iptables.New(iptables.NFT), nftables.New()} {
		l.Place(p)
		o := l.Probe("shell", spec.ClusterIPOf("web", 80))
		g.Expect(o.Answer).To(gomega.And(match.ReplyFrom("a1"), match.SeenAs(l.Host("shell").Addr(lab.V4))))
		g.Expect(l.Flow("n1", o)).To(match.DNATTo(o.Local))
		l.Expect(spec.Row{From: "n3", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}})
	}
	g.Expect(recording.Packets()).To(gomega.ContainElement(gomega.And(match.To(vip), match.Flags("SYN"))))

	l.Delete(store.KindService, "web")
	l.Expect(spec.Row{From: "shell", To: spec.AddrAt(vip.Addr().String(), "", vip.Port()), Want: spec.NotServed})
}
