// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// offloads lists the commands of linux/ethtool.h that set one offload each. All of them defer work to a network card.
var offloads = []struct {
	command uint32
	name    string
}{
	// ETHTOOL_SRXCSUM, _STXCSUM, _STSO, _SGSO, _SGRO
	{0x15, "rx"}, {0x17, "tx"}, {0x1f, "tso"}, {0x24, "gso"}, {0x2c, "gro"},
}

// DisableOffloads makes a device send every packet as a wire would carry it: with all checksums, in frames no longer
// than the MTU. It is needed where programs read or make packets: captures whose checksums matter, tunnels in
// userspace, fragments. It skips offloads that the device does not have.
func DisableOffloads(ns *netns.NS, device string) error {
	fd, err := ns.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	for _, o := range offloads {
		if err := ethtool(fd, device, o.command, 0); err != nil && err != unix.EOPNOTSUPP {
			err = fmt.Errorf("%s: switch %s off on %s: %w", ns.Name(), o.name, device, err)
			return errors.Join(err, unix.Close(fd))
		}
	}
	return unix.Close(fd)
}

// ethtool sends a struct ethtool_value (linux/ethtool.h) in a struct ifreq.
func ethtool(fd int, device string, command, value uint32) error {
	data := &struct{ command, value uint32 }{command, value}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the union is 24 bytes long
	}{data: unsafe.Pointer(data)}
	if copy(request.name[:unix.IFNAMSIZ-1], device) < len(device) {
		return unix.ENODEV
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(data)
	if errno != 0 {
		return errno
	}
	return nil
}
