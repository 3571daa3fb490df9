// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"bufio"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

func TestHostPortsAndHostNetwork(t *testing.T) {
	w := newWorld(t)
	w.pod("web", "{containers: [{name: web, image: nginx, ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 81, hostPort: 8081, hostIP: 192.0.2.1}]}]}")
	w.awaitReady("web")
	w.pod("host", "{hostNetwork: true, containers: [{name: web, image: nginx, ports: [{containerPort: 9090}]}]}")
	w.awaitReady("host")
	node := w.Lab().Node("n1").Addr(lab.V4)
	for _, x := range []struct {
		from   string
		port   uint16
		server string
	}{{"client", 8080, "default/web"}, {"web", 8080, "default/web"}, {"client", 9090, "default/host"}} {
		from := w.Lab().Client()
		if x.from == "web" {
			from = &w.Lab().Pod("default/web").Host
		}
		conn, err := from.Dial(w.ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(node, x.port))
		if err != nil {
			t.Errorf("%s to port %d: %v", x.from, x.port, err)
			continue
		}
		_, err = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
		nstest.Must(t, err)
		if answer, err := bufio.NewReader(conn).ReadString('}'); !strings.Contains(answer, `"server":"`+x.server+`"`) {
			t.Errorf("%s to port %d: %q, %v", x.from, x.port, answer, err)
		}
	}
	if _, err := w.Lab().Client().Dial(w.ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(node, 8081)); err == nil {
		t.Error("a host port of another address answers")
	}
	nstest.Must(t, w.Store().Delete(store.KindPod, "default", "web"))
	w.gone("web")
	if _, err := w.Lab().Client().Dial(w.ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(node, 8080)); err == nil {
		t.Error("the host port of a pod that is gone answers")
	}
}
