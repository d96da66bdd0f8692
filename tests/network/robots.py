"""ROS 1 itself, as Debian packs it: the master of roscore, rospy, and actionlib with an action of
the navigation stack.

    robots.py master       the master, at port 11311
    robots.py robot        publishes scans, serves "motors", drives where it is told
    robots.py operator     uses all of it, prints "done" and ends

ROS_MASTER_URI says where the master is, ROS_HOSTNAME by which name a node tells others to call it.
"""

import queue
import sys
import time

SCANS = 200
WITHIN = 20


def scan(number):
    return f"{number}:" + "x" * 4000


def master():
    import rosmaster
    rosmaster.rosmaster_main(["rosmaster", "--core", "-p", "11311"])


def robot():
    import actionlib
    import rospy
    from move_base_msgs.msg import MoveBaseAction, MoveBaseFeedback
    from std_msgs.msg import String
    from std_srvs.srv import SetBool, SetBoolResponse

    rospy.init_node("robot", disable_signals=True)
    scans = rospy.Publisher("scan", String, queue_size=2 * SCANS)
    rospy.Service("motors", SetBool, lambda asked: SetBoolResponse(asked.data, f"{asked.data}"))

    def drive(goal):
        feedback = MoveBaseFeedback()
        place = feedback.base_position.pose.position
        while not driver.is_preempt_requested():
            place.x += 1
            driver.publish_feedback(feedback)
            time.sleep(0.02)
        driver.set_preempted(text=f"stopped before {goal.target_pose.header.frame_id}")

    driver = actionlib.SimpleActionServer("move_base", MoveBaseAction, drive, auto_start=False)
    driver.start()
    print("robot ready", flush=True)
    while scans.get_num_connections() == 0:
        time.sleep(0.01)
    for number in range(SCANS):
        scans.publish(scan(number))
    rospy.spin()


def operator():
    import actionlib
    import rospy
    from actionlib_msgs.msg import GoalStatus
    from move_base_msgs.msg import MoveBaseAction, MoveBaseGoal
    from std_msgs.msg import String
    from std_srvs.srv import SetBool

    rospy.init_node("operator", disable_signals=True)
    inbox = queue.Queue()
    rospy.Subscriber("scan", String, lambda said: inbox.put(said.data))
    for number in range(SCANS):
        said = inbox.get(timeout=WITHIN)
        assert said == scan(number), f"{said[:20]} for {number}"
    rospy.wait_for_service("motors", WITHIN)
    motors = rospy.ServiceProxy("motors", SetBool)
    for number in range(20):
        answer = motors(number % 2 == 0)
        assert answer.success == (number % 2 == 0) and answer.message == str(answer.success)
    driver = actionlib.SimpleActionClient("move_base", MoveBaseAction)
    assert driver.wait_for_server(rospy.Duration(WITHIN)), "nobody drives"
    goal, places = MoveBaseGoal(), queue.Queue()
    goal.target_pose.header.frame_id = "dock"
    driver.send_goal(goal, feedback_cb=lambda told: places.put(told.base_position.pose.position.x))
    first = places.get(timeout=WITHIN)
    for step in range(1, 6):
        assert places.get(timeout=WITHIN) == first + step
    driver.cancel_goal()
    assert driver.wait_for_result(rospy.Duration(WITHIN)), "no end of it"
    assert driver.get_state() == GoalStatus.PREEMPTED, driver.get_state()
    assert driver.get_goal_status_text() == "stopped before dock"
    print("done", flush=True)


{"master": master, "robot": robot, "operator": operator}[sys.argv[1]]()
