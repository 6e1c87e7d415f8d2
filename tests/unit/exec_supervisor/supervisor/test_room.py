"""What a run happens in: the rooms there are have what the supervisor asks for."""

from everturn_testing.port_shape import find_differences
from exec_supervisor.bubblewrap.room import BubblewrapRoom
from exec_supervisor.supervisor.room import Room


def test_the_room_of_bubblewrap_is_a_room():
    assert find_differences(Room, BubblewrapRoom) == []
