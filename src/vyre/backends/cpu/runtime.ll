; Generated from native/runtime.c by scripts/make_native.py.
; Sources: f01b86b3a756edee618a98cfe9ddaf67

%struct.interrupts = type { i64, ptr, i64, ptr }
%struct.part = type { i64, [7 x i64] }
%union.anon = type { [64 x i64] }
%struct.stop_word = type { i32, i32 }
%struct.job = type { ptr, ptr, i64, i64, ptr }
%struct.slot = type { i64, i64 }
%struct.node = type { %struct.job, i64, ptr, i64, i64, ptr, ptr }

@interrupts = internal global %struct.interrupts zeroinitializer, align 8

define void @prepare(ptr noundef %0) local_unnamed_addr nounwind {
  %2 = tail call i32 @pthread_mutex_init(ptr noundef %0, ptr noundef null)
  %3 = getelementptr inbounds nuw i8, ptr %0, i64 128
  %4 = tail call i32 @pthread_cond_init(ptr noundef nonnull %3, ptr noundef null)
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 256
  %6 = tail call i32 @pthread_cond_init(ptr noundef nonnull %5, ptr noundef null)
  ret void
}

declare i32 @pthread_mutex_init(ptr noundef, ptr noundef) local_unnamed_addr

declare i32 @pthread_cond_init(ptr noundef, ptr noundef) local_unnamed_addr

define void @worker(ptr noundef %0, i64 noundef %1) local_unnamed_addr nounwind {
  %3 = getelementptr inbounds nuw i8, ptr %0, i64 384
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 408
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 512
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 128
  %7 = getelementptr inbounds nuw i8, ptr %0, i64 400
  %8 = getelementptr inbounds nuw i8, ptr %0, i64 448
  %9 = getelementptr inbounds nuw i8, ptr %0, i64 392
  %10 = getelementptr inbounds nuw i8, ptr %0, i64 520
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 256
  br label %12

12:                                               ; preds = %63, %2
  %13 = phi i64 [ 0, %2 ], [ %43, %63 ]
  %14 = load atomic i64, ptr %3 seq_cst, align 8
  %15 = icmp eq i64 %14, %13
  br i1 %15, label %16, label %42

16:                                               ; preds = %12, %27
  %17 = phi i64 [ %21, %27 ], [ 0, %12 ]
  %18 = load i64, ptr %4, align 8
  %19 = icmp ult i64 %17, %18
  br i1 %19, label %20, label %30

20:                                               ; preds = %16
  %21 = add nuw i64 %17, 1
  %22 = and i64 %21, 63
  %23 = icmp eq i64 %22, 0
  br i1 %23, label %24, label %26

24:                                               ; preds = %20
  %25 = tail call i32 @sched_yield()
  br label %27

26:                                               ; preds = %20
  tail call void @machine_pause()
  br label %27

27:                                               ; preds = %26, %24
  %28 = load atomic i64, ptr %3 seq_cst, align 8
  %29 = icmp eq i64 %28, %13
  br i1 %29, label %16, label %42

30:                                               ; preds = %16
  %31 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull %0)
  %32 = atomicrmw add ptr %5, i64 1 seq_cst, align 8
  %33 = load atomic i64, ptr %3 seq_cst, align 8
  %34 = icmp eq i64 %33, %13
  br i1 %34, label %35, label %39

35:                                               ; preds = %30, %35
  %36 = tail call i32 @pthread_cond_wait(ptr noundef nonnull %6, ptr noundef nonnull %0)
  %37 = load atomic i64, ptr %3 seq_cst, align 8
  %38 = icmp eq i64 %37, %13
  br i1 %38, label %35, label %39

39:                                               ; preds = %35, %30
  %40 = atomicrmw sub ptr %5, i64 1 seq_cst, align 8
  %41 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull %0)
  br label %42

42:                                               ; preds = %27, %12, %39
  %43 = load atomic i64, ptr %3 seq_cst, align 8
  %44 = load atomic i64, ptr %7 seq_cst, align 8
  %45 = icmp eq i64 %44, 0
  br i1 %45, label %47, label %46

46:                                               ; preds = %42
  ret void

47:                                               ; preds = %42
  %48 = atomicrmw add ptr %8, i64 1 seq_cst, align 8
  %49 = load atomic i64, ptr %9 seq_cst, align 8
  %50 = icmp eq i64 %49, 0
  br i1 %50, label %53, label %51

51:                                               ; preds = %47
  %52 = inttoptr i64 %49 to ptr
  tail call fastcc void @take_grains(ptr noundef nonnull %0, ptr noundef nonnull %52, i64 noundef %1)
  br label %53

53:                                               ; preds = %51, %47
  %54 = atomicrmw sub ptr %8, i64 1 seq_cst, align 8
  %55 = icmp eq i64 %54, 1
  br i1 %55, label %56, label %63

56:                                               ; preds = %53
  %57 = load atomic i64, ptr %10 seq_cst, align 8
  %58 = icmp eq i64 %57, 0
  br i1 %58, label %63, label %59

59:                                               ; preds = %56
  %60 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull %0)
  %61 = tail call i32 @pthread_cond_signal(ptr noundef nonnull %11)
  %62 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull %0)
  br label %63

63:                                               ; preds = %59, %56, %53
  br label %12
}

declare void @llvm.lifetime.start.p0(ptr captures(none))

declare i32 @pthread_mutex_lock(ptr noundef) local_unnamed_addr

declare i32 @pthread_cond_wait(ptr noundef, ptr noundef) local_unnamed_addr

declare i32 @pthread_mutex_unlock(ptr noundef) local_unnamed_addr

define internal fastcc void @take_grains(ptr noundef captures(none) %0, ptr noundef readonly captures(none) %1, i64 noundef %2) unnamed_addr nounwind {
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 640
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 416
  %6 = load i64, ptr %5, align 8
  %7 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %8 = load i64, ptr %7, align 8
  %9 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %8, -1
  %12 = add i64 %11, %10
  %13 = udiv i64 %12, %10
  %14 = add i64 %6, -1
  %15 = add i64 %14, %13
  %16 = udiv i64 %15, %6
  %17 = mul i64 %16, %10
  %18 = getelementptr inbounds nuw i8, ptr %1, i64 32
  %19 = getelementptr inbounds nuw i8, ptr %1, i64 8
  br label %20

20:                                               ; preds = %3, %66
  %21 = phi i64 [ 0, %3 ], [ %67, %66 ]
  %22 = add i64 %21, %2
  %23 = icmp ult i64 %22, %6
  %24 = select i1 %23, i64 0, i64 %6
  %25 = sub nuw i64 %22, %24
  %26 = mul i64 %25, %17
  %27 = tail call noundef i64 @llvm.umin.i64(i64 %26, i64 %8)
  %28 = sub i64 %8, %27
  %29 = tail call noundef i64 @llvm.umin.i64(i64 %17, i64 %28)
  %30 = getelementptr inbounds nuw %struct.part, ptr %4, i64 %25
  %31 = icmp eq i64 %21, 0
  br i1 %31, label %48, label %32

32:                                               ; preds = %20
  %33 = load atomic i64, ptr %30 monotonic, align 8
  %34 = icmp ult i64 %33, %29
  br i1 %34, label %35, label %66

35:                                               ; preds = %32, %42
  %36 = phi i64 [ %46, %42 ], [ %33, %32 ]
  %37 = phi i64 [ %36, %42 ], [ 0, %32 ]
  %38 = phi i64 [ %45, %42 ], [ 0, %32 ]
  %39 = icmp eq i64 %36, 0
  %40 = select i1 %39, i64 8, i64 256
  %41 = icmp ult i64 %38, %40
  br i1 %41, label %42, label %48

42:                                               ; preds = %35
  tail call void @machine_pause()
  %43 = icmp eq i64 %36, %37
  %44 = add nuw nsw i64 %38, 1
  %45 = select i1 %43, i64 %44, i64 0
  %46 = load atomic i64, ptr %30 monotonic, align 8
  %47 = icmp ult i64 %46, %29
  br i1 %47, label %35, label %66

48:                                               ; preds = %35, %20
  %49 = load atomic i64, ptr %30 monotonic, align 8
  %50 = icmp ult i64 %49, %29
  br i1 %50, label %51, label %66

51:                                               ; preds = %48, %58
  %52 = atomicrmw add ptr %30, i64 %10 monotonic, align 8
  %53 = icmp ult i64 %52, %29
  br i1 %53, label %54, label %66

54:                                               ; preds = %51
  %55 = load ptr, ptr %18, align 8
  %56 = load atomic i32, ptr %55 monotonic, align 4
  %57 = icmp eq i32 %56, 0
  br i1 %57, label %58, label %69

58:                                               ; preds = %54
  %59 = add i64 %52, %27
  %60 = load ptr, ptr %1, align 8
  %61 = load ptr, ptr %19, align 8
  %62 = add i64 %59, %10
  %63 = tail call noundef i64 @llvm.umin.i64(i64 %62, i64 %8)
  tail call void %60(ptr noundef %61, i64 noundef %59, i64 noundef %63)
  %64 = load atomic i64, ptr %30 monotonic, align 8
  %65 = icmp ult i64 %64, %29
  br i1 %65, label %51, label %66

66:                                               ; preds = %42, %58, %51, %48, %32
  %67 = add nuw i64 %21, 1
  %68 = icmp eq i64 %67, %6
  br i1 %68, label %69, label %20

69:                                               ; preds = %66, %54
  tail call void @machine_fence()
  ret void
}

declare i32 @pthread_cond_signal(ptr noundef) local_unnamed_addr

declare void @llvm.lifetime.end.p0(ptr captures(none))

define void @quit(ptr noundef %0) local_unnamed_addr nounwind {
  %2 = getelementptr inbounds nuw i8, ptr %0, i64 400
  store atomic i64 1, ptr %2 seq_cst, align 8
  %3 = getelementptr inbounds nuw i8, ptr %0, i64 384
  %4 = atomicrmw add ptr %3, i64 1 seq_cst, align 8
  %5 = tail call i32 @pthread_mutex_lock(ptr noundef %0)
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 128
  %7 = tail call i32 @pthread_cond_broadcast(ptr noundef nonnull %6)
  %8 = tail call i32 @pthread_mutex_unlock(ptr noundef %0)
  ret void
}

declare i32 @pthread_cond_broadcast(ptr noundef) local_unnamed_addr

define noundef nonnull ptr @interrupt_state() local_unnamed_addr nounwind {
  ret ptr @interrupts
}

define range(i64 -2, 4294967296) i64 @enter(ptr noundef %0, ptr noundef readonly captures(none) %1, ptr noundef readonly captures(none) %2, ptr noundef %3) local_unnamed_addr nounwind {
  %5 = tail call fastcc i64 @run_frame(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, i1 noundef zeroext false)
  ret i64 %5
}

define internal fastcc range(i64 -2, 4294967296) i64 @run_frame(ptr noundef %0, ptr noundef readonly captures(none) %1, ptr noundef readonly captures(none) %2, ptr noundef %3, i1 noundef zeroext %4) unnamed_addr nounwind {
  %6 = alloca %union.anon, align 8
  %7 = alloca %struct.stop_word, align 8
  %8 = alloca %struct.job, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %7)
  store i64 0, ptr %7, align 8
  %9 = icmp eq ptr %3, null
  %10 = select i1 %9, ptr %7, ptr %3
  %11 = getelementptr inbounds nuw i8, ptr %1, i64 32
  %12 = load i64, ptr %11, align 8
  %13 = tail call ptr @llvm.stacksave.p0()
  %14 = alloca i64, i64 %12, align 16
  %15 = getelementptr inbounds nuw i8, ptr %1, i64 40
  %16 = shl nuw i64 %12, 3
  call void @llvm.memcpy.p0.p0.i64(ptr nonnull align 16 %14, ptr nonnull align 8 %15, i64 %16, i1 false)
  store ptr %10, ptr %14, align 16
  %17 = getelementptr inbounds nuw i8, ptr %14, i64 32
  %18 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %19 = load i64, ptr %18, align 8
  %20 = icmp eq i64 %19, 0
  br i1 %20, label %36, label %21

21:                                               ; preds = %5
  %22 = load i64, ptr @array_data_offset, align 8
  br label %23

23:                                               ; preds = %21, %33
  %24 = phi i64 [ 0, %21 ], [ %34, %33 ]
  %25 = getelementptr inbounds nuw ptr, ptr %2, i64 %24
  %26 = load ptr, ptr %25, align 8
  %27 = getelementptr inbounds nuw i8, ptr %26, i64 %22
  %28 = load i64, ptr %27, align 8
  %29 = getelementptr inbounds nuw %struct.slot, ptr %17, i64 %24
  %30 = load i64, ptr %29, align 16
  %31 = and i64 %30, %28
  %32 = icmp eq i64 %31, 0
  br i1 %32, label %33, label %108

33:                                               ; preds = %23
  store i64 %28, ptr %29, align 16
  %34 = add nuw i64 %24, 1
  %35 = icmp eq i64 %34, %19
  br i1 %35, label %36, label %23

36:                                               ; preds = %33, %5
  br i1 %4, label %37, label %55

37:                                               ; preds = %36
  call void @llvm.lifetime.start.p0(ptr nonnull %6)
  %38 = call i32 @sigaction(i32 noundef 2, ptr noundef null, ptr noundef nonnull %6)
  %39 = icmp ne i32 %38, 0
  %40 = load ptr, ptr %6, align 8
  %41 = icmp eq ptr %40, @on_interrupt
  %42 = icmp ult ptr %40, inttoptr (i64 2 to ptr)
  %43 = or i1 %41, %42
  %44 = select i1 %39, i1 true, i1 %43
  br i1 %44, label %45, label %46

45:                                               ; preds = %37
  call void @llvm.lifetime.end.p0(ptr nonnull %6)
  br label %50

46:                                               ; preds = %37
  %47 = ptrtoint ptr %40 to i64
  store atomic i64 %47, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 24) seq_cst, align 8
  store ptr @on_interrupt, ptr %6, align 8
  %48 = call i32 @sigaction(i32 noundef 2, ptr noundef nonnull %6, ptr noundef null)
  %49 = icmp eq i32 %48, 0
  call void @llvm.lifetime.end.p0(ptr nonnull %6)
  br i1 %49, label %108, label %50

50:                                               ; preds = %46, %45
  %51 = ptrtoint ptr %10 to i64
  store atomic i64 %51, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 8) seq_cst, align 8
  %52 = load atomic i64, ptr @interrupts seq_cst, align 8
  %53 = icmp eq i64 %52, 0
  br i1 %53, label %55, label %54

54:                                               ; preds = %50
  store atomic i32 3, ptr %10 seq_cst, align 4
  br label %55

55:                                               ; preds = %54, %50, %36
  %56 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %57 = load i64, ptr %56, align 8
  %58 = icmp eq i64 %57, 0
  br i1 %58, label %59, label %63

59:                                               ; preds = %55
  %60 = load ptr, ptr %1, align 8
  %61 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %62 = load i64, ptr %61, align 8
  call void %60(ptr noundef nonnull %14, i64 noundef 0, i64 noundef %62)
  call void @machine_fence()
  br label %97

63:                                               ; preds = %55
  call void @llvm.lifetime.start.p0(ptr nonnull %8)
  %64 = load ptr, ptr %1, align 8
  store ptr %64, ptr %8, align 8
  %65 = getelementptr inbounds nuw i8, ptr %8, i64 8
  store ptr %14, ptr %65, align 8
  %66 = getelementptr inbounds nuw i8, ptr %8, i64 16
  %67 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %68 = load i64, ptr %67, align 8
  store i64 %68, ptr %66, align 8
  %69 = getelementptr inbounds nuw i8, ptr %8, i64 24
  store i64 %57, ptr %69, align 8
  %70 = getelementptr inbounds nuw i8, ptr %8, i64 32
  store ptr %10, ptr %70, align 8
  %71 = icmp eq ptr %0, null
  br i1 %71, label %78, label %72

72:                                               ; preds = %63
  %73 = getelementptr inbounds nuw i8, ptr %0, i64 528
  %74 = cmpxchg ptr %73, i64 0, i64 1 seq_cst seq_cst, align 8
  %75 = extractvalue { i64, i1 } %74, 1
  br i1 %75, label %95, label %76

76:                                               ; preds = %72
  %77 = load i64, ptr %66, align 8
  br label %78

78:                                               ; preds = %76, %63
  %79 = phi i64 [ %77, %76 ], [ %68, %63 ]
  %80 = icmp eq i64 %79, 0
  br i1 %80, label %94, label %81

81:                                               ; preds = %78
  %82 = load ptr, ptr %70, align 8
  br label %83

83:                                               ; preds = %81, %87
  %84 = phi i64 [ %91, %87 ], [ 0, %81 ]
  %85 = load atomic i32, ptr %82 monotonic, align 4
  %86 = icmp eq i32 %85, 0
  br i1 %86, label %87, label %94

87:                                               ; preds = %83
  %88 = load ptr, ptr %8, align 8
  %89 = load ptr, ptr %65, align 8
  %90 = load i64, ptr %69, align 8
  %91 = add i64 %90, %84
  %92 = call noundef i64 @llvm.umin.i64(i64 %91, i64 %79)
  call void %88(ptr noundef %89, i64 noundef %84, i64 noundef %92)
  %93 = icmp ult i64 %91, %79
  br i1 %93, label %83, label %94

94:                                               ; preds = %87, %83, %78
  call void @machine_fence()
  br label %96

95:                                               ; preds = %72
  call fastcc void @share_job(ptr noundef %0, ptr noundef nonnull %8)
  store atomic i64 0, ptr %73 seq_cst, align 8
  br label %96

96:                                               ; preds = %94, %95
  call void @llvm.lifetime.end.p0(ptr nonnull %8)
  br label %97

97:                                               ; preds = %96, %59
  br i1 %4, label %98, label %105

98:                                               ; preds = %97
  store atomic i64 0, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 8) seq_cst, align 8
  %99 = load atomic i64, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 16) seq_cst, align 8
  %100 = icmp eq i64 %99, 0
  br i1 %100, label %105, label %101

101:                                              ; preds = %98, %101
  %102 = call i32 @sched_yield()
  %103 = load atomic i64, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 16) seq_cst, align 8
  %104 = icmp eq i64 %103, 0
  br i1 %104, label %105, label %101

105:                                              ; preds = %101, %98, %97
  %106 = load atomic i32, ptr %10 monotonic, align 4
  %107 = zext i32 %106 to i64
  br label %108

108:                                              ; preds = %23, %46, %105
  %109 = phi i64 [ %107, %105 ], [ -2, %46 ], [ -1, %23 ]
  call void @llvm.stackrestore.p0(ptr %13)
  call void @llvm.lifetime.end.p0(ptr nonnull %7)
  ret i64 %109
}

define range(i64 -2, 4294967296) i64 @enter_interruptibly(ptr noundef %0, ptr noundef readonly captures(none) %1, ptr noundef readonly captures(none) %2, ptr noundef %3) local_unnamed_addr nounwind {
  %5 = tail call fastcc i64 @run_frame(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, i1 noundef zeroext true)
  ret i64 %5
}

define range(i64 0, 4) i64 @walk(ptr noundef %0, ptr noundef captures(none) %1) local_unnamed_addr nounwind {
  %3 = icmp eq ptr %0, null
  br i1 %3, label %8, label %4

4:                                                ; preds = %2
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 528
  %6 = cmpxchg ptr %5, i64 0, i64 1 seq_cst seq_cst, align 8
  %7 = extractvalue { i64, i1 } %6, 1
  br i1 %7, label %10, label %8

8:                                                ; preds = %2, %4
  %9 = tail call fastcc i64 @run_nodes(ptr noundef null, ptr noundef %1)
  br label %12

10:                                               ; preds = %4
  %11 = tail call fastcc i64 @run_nodes(ptr noundef nonnull %0, ptr noundef %1)
  store atomic i64 0, ptr %5 seq_cst, align 8
  br label %12

12:                                               ; preds = %8, %10
  %13 = phi i64 [ %9, %8 ], [ %11, %10 ]
  ret i64 %13
}

define internal fastcc range(i64 0, 4) i64 @run_nodes(ptr noundef %0, ptr noundef captures(none) %1) unnamed_addr nounwind {
  %3 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %4 = getelementptr inbounds nuw i8, ptr %1, i64 32
  %5 = load i64, ptr %3, align 8
  %6 = load i64, ptr %4, align 8
  %7 = icmp ult i64 %5, %6
  br i1 %7, label %8, label %161

8:                                                ; preds = %2
  %9 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %10 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %11 = icmp eq ptr %0, null
  %12 = getelementptr inbounds nuw i8, ptr %1, i64 72
  %13 = getelementptr inbounds nuw i8, ptr %1, i64 64
  %14 = getelementptr inbounds nuw i8, ptr %1, i64 40
  %15 = getelementptr inbounds nuw i8, ptr %1, i64 48
  %16 = getelementptr inbounds nuw i8, ptr %1, i64 56
  br label %17

17:                                               ; preds = %8, %157
  %18 = phi i64 [ %5, %8 ], [ %158, %157 ]
  %19 = load i64, ptr %9, align 8
  %20 = load i64, ptr %10, align 8
  %21 = icmp ult i64 %19, %20
  br i1 %21, label %22, label %117

22:                                               ; preds = %17, %110
  %23 = phi i64 [ %112, %110 ], [ %19, %17 ]
  %24 = load ptr, ptr %1, align 8
  %25 = getelementptr inbounds nuw %struct.node, ptr %24, i64 %23
  %26 = getelementptr inbounds nuw i8, ptr %25, i64 48
  %27 = load ptr, ptr %26, align 8
  %28 = getelementptr inbounds nuw i8, ptr %25, i64 56
  %29 = load i64, ptr %28, align 8
  %30 = mul nuw nsw i64 %29, 24
  %31 = getelementptr inbounds nuw i8, ptr %27, i64 %30
  %32 = icmp eq i64 %29, 0
  br i1 %32, label %46, label %33

33:                                               ; preds = %22, %43
  %34 = phi ptr [ %44, %43 ], [ %27, %22 ]
  %35 = getelementptr inbounds nuw i8, ptr %34, i64 8
  %36 = load ptr, ptr %35, align 8
  %37 = icmp eq ptr %36, null
  %38 = load ptr, ptr %34, align 8
  %39 = getelementptr inbounds nuw i8, ptr %34, i64 16
  %40 = load i64, ptr %39, align 8
  br i1 %37, label %41, label %42

41:                                               ; preds = %33
  tail call void @llvm.memset.p0.i64(ptr align 1 %38, i8 0, i64 %40, i1 false)
  br label %43

42:                                               ; preds = %33
  tail call void @llvm.memcpy.p0.p0.i64(ptr align 1 %38, ptr nonnull align 1 %36, i64 %40, i1 false)
  br label %43

43:                                               ; preds = %42, %41
  %44 = getelementptr inbounds nuw i8, ptr %34, i64 24
  %45 = icmp ult ptr %44, %31
  br i1 %45, label %33, label %46

46:                                               ; preds = %43, %22
  %47 = getelementptr inbounds nuw i8, ptr %25, i64 80
  %48 = load ptr, ptr %47, align 8
  %49 = icmp eq ptr %48, null
  br i1 %49, label %53, label %50

50:                                               ; preds = %46
  %51 = getelementptr inbounds nuw i8, ptr %48, i64 4
  store i32 0, ptr %51, align 4
  %52 = load ptr, ptr %47, align 8
  store i32 0, ptr %52, align 4
  br label %53

53:                                               ; preds = %50, %46
  br i1 %11, label %59, label %54

54:                                               ; preds = %53
  %55 = getelementptr inbounds nuw i8, ptr %25, i64 40
  %56 = load i64, ptr %55, align 8
  %57 = icmp eq i64 %56, 0
  br i1 %57, label %59, label %58

58:                                               ; preds = %54
  tail call fastcc void @share_job(ptr noundef %0, ptr noundef nonnull %25)
  br label %84

59:                                               ; preds = %54, %53
  %60 = getelementptr inbounds nuw i8, ptr %25, i64 32
  %61 = getelementptr inbounds nuw i8, ptr %25, i64 16
  %62 = load i64, ptr %61, align 8
  %63 = icmp eq i64 %62, 0
  br i1 %63, label %83, label %64

64:                                               ; preds = %59
  %65 = getelementptr inbounds nuw i8, ptr %25, i64 8
  %66 = getelementptr inbounds nuw i8, ptr %25, i64 24
  br label %67

67:                                               ; preds = %73, %64
  %68 = phi i64 [ %62, %64 ], [ %81, %73 ]
  %69 = phi i64 [ 0, %64 ], [ %80, %73 ]
  %70 = load ptr, ptr %60, align 8
  %71 = load atomic i32, ptr %70 monotonic, align 4
  %72 = icmp eq i32 %71, 0
  br i1 %72, label %73, label %83

73:                                               ; preds = %67
  %74 = load ptr, ptr %25, align 8
  %75 = load ptr, ptr %65, align 8
  %76 = load i64, ptr %66, align 8
  %77 = add i64 %76, %69
  %78 = tail call noundef i64 @llvm.umin.i64(i64 %77, i64 %68)
  tail call void %74(ptr noundef %75, i64 noundef %69, i64 noundef %78)
  %79 = load i64, ptr %66, align 8
  %80 = add i64 %79, %69
  %81 = load i64, ptr %61, align 8
  %82 = icmp ult i64 %80, %81
  br i1 %82, label %67, label %83

83:                                               ; preds = %67, %73, %59
  tail call void @machine_fence()
  br label %84

84:                                               ; preds = %83, %58
  %85 = getelementptr inbounds nuw i8, ptr %25, i64 32
  %86 = load ptr, ptr %85, align 8
  %87 = load atomic i32, ptr %86 monotonic, align 4
  %88 = icmp eq i32 %87, 0
  br i1 %88, label %89, label %161

89:                                               ; preds = %84
  %90 = load ptr, ptr %47, align 8
  %91 = icmp eq ptr %90, null
  br i1 %91, label %92, label %94

92:                                               ; preds = %89
  %93 = getelementptr inbounds nuw i8, ptr %25, i64 64
  br label %110

94:                                               ; preds = %89
  %95 = load i64, ptr %12, align 8
  %96 = add i64 %95, 1
  store i64 %96, ptr %12, align 8
  %97 = load ptr, ptr %47, align 8
  %98 = getelementptr inbounds nuw i8, ptr %97, i64 4
  %99 = load i32, ptr %98, align 4
  %100 = icmp eq i32 %99, 0
  br i1 %100, label %101, label %161

101:                                              ; preds = %94
  %102 = load i64, ptr %13, align 8
  %103 = icmp eq i64 %102, 0
  br i1 %103, label %104, label %161

104:                                              ; preds = %101
  %105 = getelementptr inbounds nuw i8, ptr %25, i64 72
  %106 = load ptr, ptr %105, align 8
  %107 = load i32, ptr %97, align 4
  %108 = zext i32 %107 to i64
  %109 = getelementptr inbounds nuw i64, ptr %106, i64 %108
  br label %110

110:                                              ; preds = %104, %92
  %111 = phi ptr [ %109, %104 ], [ %93, %92 ]
  %112 = load i64, ptr %111, align 8
  store i64 %112, ptr %9, align 8
  %113 = load i64, ptr %10, align 8
  %114 = icmp ult i64 %112, %113
  br i1 %114, label %22, label %115

115:                                              ; preds = %110
  %116 = load i64, ptr %3, align 8
  br label %117

117:                                              ; preds = %115, %17
  %118 = phi i64 [ %116, %115 ], [ %18, %17 ]
  %119 = add i64 %118, 1
  store i64 %119, ptr %3, align 8
  store i64 0, ptr %9, align 8
  %120 = load ptr, ptr %14, align 8
  %121 = icmp eq ptr %120, null
  br i1 %121, label %157, label %122

122:                                              ; preds = %117
  %123 = load i64, ptr %15, align 8
  %124 = load i64, ptr %16, align 8
  %125 = icmp ne i64 %124, 0
  %126 = mul nuw nsw i64 %123, 24
  %127 = getelementptr inbounds nuw i8, ptr %120, i64 %126
  %128 = icmp eq i64 %123, 0
  br i1 %128, label %161, label %129

129:                                              ; preds = %122, %145
  %130 = phi ptr [ %146, %145 ], [ %120, %122 ]
  %131 = phi i1 [ %147, %145 ], [ true, %122 ]
  %132 = load ptr, ptr %130, align 8
  %133 = getelementptr inbounds nuw i8, ptr %130, i64 8
  %134 = load ptr, ptr %133, align 8
  %135 = getelementptr inbounds nuw i8, ptr %130, i64 16
  %136 = load i64, ptr %135, align 8
  %137 = tail call i32 @memcmp(ptr noundef %132, ptr noundef %134, i64 noundef %136)
  %138 = icmp ne i32 %137, 0
  %139 = and i1 %125, %138
  br i1 %139, label %148, label %140

140:                                              ; preds = %129
  %141 = xor i1 %138, true
  %142 = select i1 %141, i1 %131, i1 false
  %143 = getelementptr inbounds nuw i8, ptr %130, i64 24
  %144 = icmp ult ptr %143, %127
  br i1 %144, label %145, label %154

145:                                              ; preds = %140, %148
  %146 = phi ptr [ %152, %148 ], [ %143, %140 ]
  %147 = phi i1 [ false, %148 ], [ %142, %140 ]
  br label %129

148:                                              ; preds = %129
  %149 = load ptr, ptr %133, align 8
  %150 = load ptr, ptr %130, align 8
  %151 = load i64, ptr %135, align 8
  tail call void @llvm.memcpy.p0.p0.i64(ptr align 1 %149, ptr align 1 %150, i64 %151, i1 false)
  %152 = getelementptr inbounds nuw i8, ptr %130, i64 24
  %153 = icmp ult ptr %152, %127
  br i1 %153, label %145, label %155

154:                                              ; preds = %140
  br i1 %142, label %161, label %155

155:                                              ; preds = %148, %154
  %156 = load i64, ptr %3, align 8
  br label %157

157:                                              ; preds = %155, %117
  %158 = phi i64 [ %156, %155 ], [ %119, %117 ]
  %159 = load i64, ptr %4, align 8
  %160 = icmp ult i64 %158, %159
  br i1 %160, label %17, label %161

161:                                              ; preds = %154, %157, %122, %94, %101, %84, %2
  %162 = phi i64 [ 0, %2 ], [ 3, %84 ], [ 2, %101 ], [ 2, %94 ], [ 0, %157 ], [ 1, %122 ], [ 1, %154 ]
  ret i64 %162
}

define range(i64 0, 5) i64 @walk_interruptibly(ptr noundef %0, ptr noundef %1) local_unnamed_addr nounwind {
  %3 = alloca %union.anon, align 8
  %4 = getelementptr inbounds nuw i8, ptr %1, i64 160
  call void @llvm.lifetime.start.p0(ptr nonnull %3)
  %5 = call i32 @sigaction(i32 noundef 2, ptr noundef null, ptr noundef nonnull %3)
  %6 = icmp ne i32 %5, 0
  %7 = load ptr, ptr %3, align 8
  %8 = icmp eq ptr %7, @on_interrupt
  %9 = icmp ult ptr %7, inttoptr (i64 2 to ptr)
  %10 = or i1 %8, %9
  %11 = select i1 %6, i1 true, i1 %10
  br i1 %11, label %12, label %13

12:                                               ; preds = %2
  call void @llvm.lifetime.end.p0(ptr nonnull %3)
  br label %17

13:                                               ; preds = %2
  %14 = ptrtoint ptr %7 to i64
  store atomic i64 %14, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 24) seq_cst, align 8
  store ptr @on_interrupt, ptr %3, align 8
  %15 = call i32 @sigaction(i32 noundef 2, ptr noundef nonnull %3, ptr noundef null)
  %16 = icmp eq i32 %15, 0
  call void @llvm.lifetime.end.p0(ptr nonnull %3)
  br i1 %16, label %40, label %17

17:                                               ; preds = %13, %12
  %18 = ptrtoint ptr %4 to i64
  store atomic i64 %18, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 8) seq_cst, align 8
  %19 = load atomic i64, ptr @interrupts seq_cst, align 8
  %20 = icmp eq i64 %19, 0
  br i1 %20, label %22, label %21

21:                                               ; preds = %17
  store atomic i32 3, ptr %4 seq_cst, align 4
  br label %22

22:                                               ; preds = %17, %21
  %23 = icmp eq ptr %0, null
  br i1 %23, label %28, label %24

24:                                               ; preds = %22
  %25 = getelementptr inbounds nuw i8, ptr %0, i64 528
  %26 = cmpxchg ptr %25, i64 0, i64 1 seq_cst seq_cst, align 8
  %27 = extractvalue { i64, i1 } %26, 1
  br i1 %27, label %30, label %28

28:                                               ; preds = %24, %22
  %29 = call fastcc i64 @run_nodes(ptr noundef null, ptr noundef %1)
  br label %32

30:                                               ; preds = %24
  %31 = call fastcc i64 @run_nodes(ptr noundef nonnull %0, ptr noundef %1)
  store atomic i64 0, ptr %25 seq_cst, align 8
  br label %32

32:                                               ; preds = %28, %30
  %33 = phi i64 [ %29, %28 ], [ %31, %30 ]
  store atomic i64 0, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 8) seq_cst, align 8
  %34 = load atomic i64, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 16) seq_cst, align 8
  %35 = icmp eq i64 %34, 0
  br i1 %35, label %40, label %36

36:                                               ; preds = %32, %36
  %37 = call i32 @sched_yield()
  %38 = load atomic i64, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 16) seq_cst, align 8
  %39 = icmp eq i64 %38, 0
  br i1 %39, label %40, label %36

40:                                               ; preds = %36, %32, %13
  %41 = phi i64 [ 4, %13 ], [ %33, %32 ], [ %33, %36 ]
  ret i64 %41
}

declare i32 @sched_yield() local_unnamed_addr

declare void @llvm.memset.p0.i64(ptr writeonly captures(none), i8, i64, i1 immarg)

declare ptr @llvm.stacksave.p0()

declare void @llvm.memcpy.p0.p0.i64(ptr noalias writeonly captures(none), ptr noalias readonly captures(none), i64, i1 immarg)

define internal fastcc void @share_job(ptr noundef nonnull %0, ptr noundef %1) unnamed_addr nounwind {
  %3 = getelementptr inbounds nuw i8, ptr %0, i64 640
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 416
  %5 = load i64, ptr %4, align 8
  %6 = icmp eq i64 %5, 0
  br i1 %6, label %7, label %15

7:                                                ; preds = %15, %2
  %8 = getelementptr inbounds nuw i8, ptr %0, i64 392
  %9 = ptrtoint ptr %1 to i64
  store atomic i64 %9, ptr %8 seq_cst, align 8
  %10 = getelementptr inbounds nuw i8, ptr %0, i64 384
  %11 = atomicrmw add ptr %10, i64 1 seq_cst, align 8
  %12 = getelementptr inbounds nuw i8, ptr %0, i64 512
  %13 = load atomic i64, ptr %12 seq_cst, align 8
  %14 = icmp eq i64 %13, 0
  br i1 %14, label %25, label %20

15:                                               ; preds = %2, %15
  %16 = phi i64 [ %18, %15 ], [ 0, %2 ]
  %17 = getelementptr inbounds nuw %struct.part, ptr %3, i64 %16
  store atomic i64 0, ptr %17 monotonic, align 8
  %18 = add nuw i64 %16, 1
  %19 = icmp ult i64 %18, %5
  br i1 %19, label %15, label %7

20:                                               ; preds = %7
  %21 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull %0)
  %22 = getelementptr inbounds nuw i8, ptr %0, i64 128
  %23 = tail call i32 @pthread_cond_broadcast(ptr noundef nonnull %22)
  %24 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull %0)
  br label %25

25:                                               ; preds = %20, %7
  tail call fastcc void @take_grains(ptr noundef nonnull %0, ptr noundef %1, i64 noundef 0)
  store atomic i64 0, ptr %8 seq_cst, align 8
  %26 = getelementptr inbounds nuw i8, ptr %0, i64 448
  %27 = getelementptr inbounds nuw i8, ptr %0, i64 408
  %28 = load atomic i64, ptr %26 seq_cst, align 8
  %29 = icmp eq i64 %28, 0
  br i1 %29, label %57, label %30

30:                                               ; preds = %25, %41
  %31 = phi i64 [ %35, %41 ], [ 0, %25 ]
  %32 = load i64, ptr %27, align 8
  %33 = icmp ult i64 %31, %32
  br i1 %33, label %34, label %44

34:                                               ; preds = %30
  %35 = add nuw i64 %31, 1
  %36 = and i64 %35, 63
  %37 = icmp eq i64 %36, 0
  br i1 %37, label %38, label %40

38:                                               ; preds = %34
  %39 = tail call i32 @sched_yield()
  br label %41

40:                                               ; preds = %34
  tail call void @machine_pause()
  br label %41

41:                                               ; preds = %40, %38
  %42 = load atomic i64, ptr %26 seq_cst, align 8
  %43 = icmp eq i64 %42, 0
  br i1 %43, label %57, label %30

44:                                               ; preds = %30
  %45 = tail call i32 @pthread_mutex_lock(ptr noundef nonnull %0)
  %46 = getelementptr inbounds nuw i8, ptr %0, i64 520
  store atomic i64 1, ptr %46 seq_cst, align 8
  %47 = load atomic i64, ptr %26 seq_cst, align 8
  %48 = icmp eq i64 %47, 0
  br i1 %48, label %55, label %49

49:                                               ; preds = %44
  %50 = getelementptr inbounds nuw i8, ptr %0, i64 256
  br label %51

51:                                               ; preds = %49, %51
  %52 = tail call i32 @pthread_cond_wait(ptr noundef nonnull %50, ptr noundef nonnull %0)
  %53 = load atomic i64, ptr %26 seq_cst, align 8
  %54 = icmp eq i64 %53, 0
  br i1 %54, label %55, label %51

55:                                               ; preds = %51, %44
  store atomic i64 0, ptr %46 seq_cst, align 8
  %56 = tail call i32 @pthread_mutex_unlock(ptr noundef nonnull %0)
  br label %57

57:                                               ; preds = %41, %25, %55
  ret void
}

declare void @llvm.stackrestore.p0(ptr)

declare i32 @memcmp(ptr noundef, ptr noundef, i64 noundef) local_unnamed_addr

declare i32 @sigaction(i32 noundef, ptr noundef, ptr noundef) local_unnamed_addr

define internal void @on_interrupt(i64 noundef %0, ptr noundef %1, ptr noundef %2) nounwind {
  %4 = atomicrmw add ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 16), i64 1 seq_cst, align 8
  %5 = load atomic i64, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 24) seq_cst, align 8
  %6 = inttoptr i64 %5 to ptr
  tail call void %6(i64 noundef %0, ptr noundef %1, ptr noundef %2)
  store atomic i64 1, ptr @interrupts seq_cst, align 8
  %7 = load atomic i64, ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 8) seq_cst, align 8
  %8 = icmp eq i64 %7, 0
  br i1 %8, label %11, label %9

9:                                                ; preds = %3
  %10 = inttoptr i64 %7 to ptr
  store atomic i32 3, ptr %10 seq_cst, align 4
  br label %11

11:                                               ; preds = %9, %3
  %12 = atomicrmw sub ptr getelementptr inbounds nuw (i8, ptr @interrupts, i64 16), i64 1 seq_cst, align 8
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
